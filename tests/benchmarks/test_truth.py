"""Counting on made-up rows, resuming, shards, constants that never see their family, and the plan."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarks.truth import adversary, cells, choose, figures, judge, results, run, tables
from benchmarks.truth.__main__ import main
from benchmarks.truth.cells import Cell
from benchmarks.truth.figures import Share
from benchmarks.zoo import ZOO

from vestige.core import Estimate
from vestige.ratios.divergences.learnt import IntervalParts, interval


def row(cell: str = "a|10x10", *, truth=1.0, low=0.5, high=1.5, verdict="ok", value=1.0, **fields) -> dict:
    """Every divergence of it is the one given; those of `fields` that have a divergence's name replace it."""
    one = [results.rounded(x) for x in (truth, value, low, high, 0.1)] + [
        verdict,
        results.rounded(value),
        None,
        None,
        "",
    ]
    base = {"cell": cell, "name": cell.split("|")[0], "family": "f", "n_p": 10, "n_q": 10, "weighted": False, "step": 0}
    base |= {"seed": 1, "version": 3, "cpu": 1.0, "weights": None, "reach_p": 1.0, "reach_q": 1.0}
    return base | {name: list(one) for name in results.NAMES} | fields


def measured(cell: Cell) -> list[dict]:
    return [row(cell.key, family=cell.family)]


def made_up(*names: str) -> list[Cell]:
    return [Cell("zoo", name, "f", 10, 10) for name in names]


# Counting


def test_coverage_counts_ok_alone_and_an_infinite_truth_as_a_miss():
    rows = [
        row(),
        row(truth=1.6),
        row(truth=0.4),
        row(truth=math.inf),
        row(truth=9.0, verdict="at least"),
        row(truth=9.0, verdict="refused"),
        row(truth=math.nan),
    ]
    assert figures.coverage(figures.every(rows, ["kl"])) == Share(1, 4)


def test_validity_counts_low_ends_of_at_least_alone():
    rows = [
        row(verdict="at least"),
        row(truth=math.inf, verdict="at least"),
        row(truth=0.4, verdict="at least"),
        row(truth=0.4, verdict="ok"),
    ]
    assert figures.validity(figures.every(rows, ["kl"])) == Share(2, 3)


def test_shares_of_verdicts():
    rows = [row(), row(), row(verdict="at least"), row(verdict="refused")]
    found = figures.verdicts(figures.every(rows, ["js"]))
    assert found == {"ok": Share(2, 4), "at least": Share(1, 4), "refused": Share(1, 4)}


def test_the_error_is_of_values_before_refusal_and_leaves_small_and_infinite_truths_out():
    refused = row(truth=2.0, verdict="refused", value=math.nan)
    refused["kl"][results.COLUMNS.index("two_sided")] = 1.0
    rows = [refused, row(truth=0.019, value=1.0), row(truth=math.inf), row(truth=1.0, value=1.5)]
    assert figures.error(figures.every([refused], ["kl"])) == 0.5
    assert figures.error(figures.every(rows, ["kl"])) == 0.5
    nothing = row(truth=2.0, verdict="refused", value=math.nan)
    assert figures.error(figures.every([nothing], ["kl"])) == 1.0


def test_the_width_is_relative_to_truths_above_a_fifth():
    rows = [row(truth=2.0), row(truth=0.1), row(truth=1.0, verdict="at least")]
    assert figures.width(figures.every(rows, ["kl"])) == 0.5


def test_infinite_kl_and_weights_called_good():
    rows = [row(truth=math.inf), row(truth=math.inf, verdict="refused"), row()]
    assert figures.infinite_told(rows) == Share(1, 2)
    rows = [row(weights="good", reach_p=reach) for reach in (0.5, 0.96, 0.97, 1.0)] + [row(weights=None, reach_p=0.5)]
    rows.append(row(weights="unreliable", reach_p=0.5))
    assert figures.good_out_of_reach(rows) == Share(2, 3)


def test_the_ends_of_wilson_solve_its_equation():
    share, z = Share(90, 100), 1.959964
    for end in share.wilson():
        assert abs(share.value - end) == pytest.approx(z * math.sqrt(end * (1 - end) / share.of), rel=1e-5)


# Results


def test_infinity_and_nan_are_stored_as_json_has_them(tmp_path):
    file = tmp_path / "a.json"
    results.write([row(truth=math.inf, value=math.nan, low=1 / 3)], file)
    found = results.judged(json.loads(file.read_text())["rows"][0], "kl")
    assert math.isinf(found.truth)
    assert math.isnan(found.value)
    assert found.low == 0.33333


def test_a_finished_cell_is_not_measured_again(tmp_path):
    seen = []

    def measure(cell):
        seen.append(cell.name)
        return measured(cell)

    options = {"measure": measure, "folder": tmp_path, "version": 3}
    assert run.run(made_up("a", "b"), "after", **options) == 2
    assert run.run(made_up("a", "b", "c"), "after", **options) == 1
    assert seen == ["a", "b", "c"]
    assert run.run(made_up("a"), "before", **options) == 1


def test_results_of_another_version_are_measured_again_and_replaced(tmp_path):
    run.run(made_up("a", "b"), "after", measure=measured, folder=tmp_path, version=3)
    newer = lambda cell: [row(cell.key, version=4)]  # noqa: E731
    assert run.run(made_up("a"), "after", measure=newer, folder=tmp_path, version=4) == 1
    assert [(r["name"], r["version"]) for r in results.read("zoo", "after", tmp_path)] == [("b", 3), ("a", 4)]


def test_a_run_that_ends_early_keeps_what_it_has(tmp_path):
    def measure(cell):
        if cell.name == "b":
            raise KeyboardInterrupt
        return measured(cell)

    with pytest.raises(KeyboardInterrupt):
        run.run(made_up("a", "b"), "after", measure=measure, folder=tmp_path, version=3)
    assert [r["name"] for r in results.read("zoo", "after", tmp_path)] == ["a"]


def test_shards_measure_every_cell_once_and_merge_into_one_file(tmp_path):
    wanted = made_up(*"abcde")
    for k in (1, 2):
        run.run(wanted, "after", shard=(k, 2), measure=measured, folder=tmp_path, version=3)
    parts = [results.load(results.path("zoo", "after", (k, 2), tmp_path)) for k in (1, 2)]
    assert [[r["name"] for r in part] for part in parts] == [["a", "c", "e"], ["b", "d"]]
    assert run.missing(wanted, "after", 3, tmp_path) == []
    assert results.merge("zoo", "after", tmp_path) == 5
    assert [file.name for file in tmp_path.iterdir()] == ["zoo-after.json"]
    assert {r["name"] for r in results.read("zoo", "after", tmp_path)} == set("abcde")


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b"])
def test_a_shard_is_k_of_n(text):
    with pytest.raises(SystemExit):
        main(["--run", "--shard", text])


# The plan and the samples


@pytest.mark.parametrize("edition", results.EDITIONS)
def test_the_plan_is_below_four_hours(edition):
    planned = cells.plan(edition)
    stored = {source: results.read(source, edition) for source in results.SOURCES}
    assert sum(run.seconds(cell, stored[cell.source]) for cell in planned) < cells.MOST_HOURS * 3600
    assert sum(cell.seconds for cell in planned) < cells.MOST_HOURS * 3600
    assert len({(cell.source, cell.key) for cell in planned}) == len(planned)


def test_the_plan_has_every_pair_and_drift_and_the_sizes_that_were_promised():
    sizes = {}
    for cell in cells.plan():
        sizes.setdefault((cell.source, cell.n_p, cell.n_q, cell.weighted), set()).add(cell.name)
    assert sizes["zoo", 2000, 2000, False] == sizes["zoo", 500, 500, False] == set(ZOO)
    assert len(sizes["zoo", 8000, 8000, False]) == math.ceil(len(ZOO) / 3)
    assert len(sizes["zoo", 20_000, 20_000, False]) == 12
    assert abs(len(sizes["zoo", 1000, 6000, False]) - len(ZOO) / 6) < 1
    assert abs(len(sizes["zoo", 3000, 3000, True]) - len(ZOO) / 6) < 1
    assert sizes["drift", 2000, 2000, False] == set(cells.DRIFTS)


def test_the_seed_is_that_of_the_name():
    cell = Cell("zoo", "gauss-shift-d10", "gauss", 2000, 2000)
    assert cell.seed == 1895122302
    assert cell.seed != Cell("zoo", "gauss-shift-d10", "gauss", 2000, 2000, True).seed


def test_weights_undo_the_tilt():
    pair = ZOO["gauss-shift-d10"]
    q, weights = cells.tilted(pair, 40_000, np.random.default_rng(0))
    plain = pair.draw_q(40_000, np.random.default_rng(1))
    assert q.shape == plain.shape
    assert 1 < weights.max() / weights.min() <= 4
    assert abs(q[:, 0].mean() - plain[:, 0].mean()) > 0.1
    assert np.average(q, axis=0, weights=weights) == pytest.approx(plain.mean(0), abs=0.04)


def test_a_refused_value_is_known_all_the_same():
    p, q = torch.linspace(-1.0, 3.0, 50, dtype=torch.float64), torch.linspace(-3.0, 1.0, 40, dtype=torch.float64)
    heard = [(SimpleNamespace(log_ratio_p=p, log_ratio_q=q), None)]
    refused = Estimate.refused("The rows do not overlap.", name="kl")
    stored = dict(zip(results.COLUMNS, cells._numbers("kl", 0.9, refused, heard), strict=True))
    assert (stored["truth"], stored["value"], stored["verdict"]) == (0.9, None, "refused")
    assert stored["two_sided"] == pytest.approx(float(p.mean()), rel=1e-4)


def test_a_comparison_is_a_row_with_all_that_is_stored():
    found = cells.measure(Cell("zoo", "gauss-shift-d2", "gauss", 200, 200))[0]
    assert (found["version"], found["d"], found["step"]) == (cells.version(), 2, 0)
    assert found["weights"] in ("good", "usable with care", "unreliable")
    judged = [results.judged(found, name) for name in results.NAMES]
    assert all(one.low <= one.value <= one.high for one in judged if one.verdict != "refused")
    assert all(math.isfinite(one.point) for one in judged)


@pytest.mark.slow
def test_a_drift_is_a_row_a_step():
    found = cells.measure(Cell("drift", "shift-shrink-d4", "gauss", 300, 300))
    assert [r["step"] for r in found] == [1, 2, 3, 4, 5, 6]
    truth = [cells.DRIFTS["shift-shrink-d4"].truth(t)["hellinger"] for t in range(1, 7)]
    assert [results.judged(r, "hellinger2").truth for r in found] == pytest.approx(truth, rel=1e-4)


# Constants


def case(family: str, truth: float = 1.0, movement: float = 0.01) -> choose.Case:
    return choose.Case(family, "kl", truth, IntervalParts(1.0, 0.95, 0.01, movement, 1000, 1000))


def test_the_choice_has_the_most_ok_that_hold():
    assert choose.chosen([case("a")] * 20).most == 0.09  # every constant holds; all are ok
    need = 1.01 + math.hypot(0.0196, 0.07) - 1e-6  # of the movement .01: a root of .7 or seven times
    rule = choose.chosen([case("a", truth=need)] * 20)
    assert max(rule.root * 0.1, rule.times * 0.01) >= 0.07 - 1e-9
    # a movement of .08 that no constant makes up for is not to be called ok
    mixed = [case("a")] * 20 + [case("a", truth=9.0, movement=0.08)] * 5
    assert choose.chosen(mixed).most < 0.08


def test_constants_that_make_intervals_too_wide_are_not_chosen(monkeypatch):
    monkeypatch.setattr(choose, "WIDEST", 0.15)
    rule = choose.chosen([case("a")] * 20)
    assert choose.widths([case("a")], rule)[0] <= 0.15
    assert max(rule.root * 0.1, rule.times * 0.01) < 0.08


def test_the_choice_never_sees_the_family_that_is_left_out(monkeypatch):
    found = [case(family, truth=1.0 + 0.01 * i) for i, family in enumerate("abc") for _ in range(5)]
    given = []
    plain = choose.chosen
    monkeypatch.setattr(choose, "chosen", lambda cases: given.append({c.family for c in cases}) or plain(cases))
    told = choose.left_out(found)
    assert [one.family for one in told] == ["a", "b", "c"]
    assert given == [{"b", "c"}, {"a", "c"}, {"a", "b"}]


def test_a_stored_row_is_judged_by_the_rule_of_today_unless_it_lacks_what_that_needs():
    stored = row(verdict="at least")
    stored |= {"n_p": 1000, "n_q": 1000, "step": 0, "weighted": False, "weights": None, "reach": None}
    stored["kl"] = [1.0, 1.01, 0.9, 9.0, 0.01, "at least", 1.0, 0.95, 0.01, choose.BY_RULE]
    found = results.judged(judge.judge(stored), "kl")
    ends = interval("kl", choose.parts(stored, results.judged(stored, "kl")))
    assert (found.low, found.high) == (results.rounded(ends.low), results.rounded(ends.high))
    assert (found.verdict, found.reason) == ("ok", "")
    assert judge.judge(judge.judge(stored)) == judge.judge(stored)
    other = stored | {"kl": [*stored["kl"][:-1], "rows are out of reach"]}
    assert results.judged(judge.judge(other), "kl").verdict == "at least"
    for lacks in ({"step": 1}, {"weighted": True}, {"reach": {"missed": [0.3, 0.2, 0.4]}}):
        assert judge.judge(stored | lacks) == stored | lacks
    known = stored | {"reach": {"missed": [0.3, 0.2, 0.4]}, "beyond": {"kl": 0.0}}
    assert judge.judge(known)["rule"] == judge.VERSION


def test_a_family_that_is_left_out_may_be_missed():
    told = choose.left_out([case("a")] * 20 + [case("b")] * 20 + [case("odd", truth=2.0)] * 20)
    assert told[2].others == Share(40, 40)
    assert told[2].own == Share(0, 20)
    assert choose.total(told).of == sum(one.own.of for one in told)


def test_what_another_rule_withheld_is_not_for_the_constants_to_decide():
    def stored(verdict, reason):
        one = row(verdict=verdict)
        one["kl"][-2:] = [0.01, reason]
        return one

    kept = [stored("ok", ""), stored("at least", choose.BY_RULE + " the ratio, so it may be larger")]
    others = [stored("at least", "rows are out of reach"), stored("refused", "no overlap"), row()]
    assert len(choose.of_rows(kept)) == 2
    assert choose.of_rows(others) == []


# The adversary


@pytest.mark.parametrize("move", ["rotated", "asinh", "cubed", "scaled", "sheared", "irrelevant"])
def test_a_move_that_says_so_keeps_the_truth(move):
    plain, pair = ZOO["gauss-shift-d10"], adversary.made(f"gauss-shift-d10>{move}:3")
    assert pair.exact() == plain.truth()
    x = pair.draw_p(50, np.random.default_rng(0))
    assert x.shape == (50, pair.d)
    if pair.d == plain.d:
        assert not np.allclose(x, plain.draw_p(50, np.random.default_rng(0)))
    expected = plain.log_ratio(plain.draw_p(50, np.random.default_rng(0)))
    assert pair.log_ratio(x) == pytest.approx(expected, abs=1e-6)


def test_other_moves_say_what_the_truth_becomes():
    name = "gauss-scale-d3"
    base = ZOO[name].truth()
    twice = adversary.made(f"{name}>copies:0")
    assert twice.exact()["kl"] == 2 * base["kl"]
    assert 1 - twice.exact()["hellinger"] == pytest.approx((1 - base["hellinger"]) ** 2)
    assert "js" not in twice.exact()
    assert base["js"] < adversary.known(twice)["js"] < math.log(2)
    assert adversary.made(f"{name}>swapped:0").exact()["kl"] == base["reverse_kl"]
    near = adversary.made(f"{name}>near:0")
    assert 0 < near.exact()["kl"] - base["kl"] < 0.006


def test_a_promise_is_broken_far_outside_the_interval_or_by_good_weights_out_of_reach():
    assert adversary.broken(row(truth=1.9)) == []
    assert adversary.broken(row(truth=2.1)) == list(results.NAMES)
    assert adversary.broken(row(truth=2.1, verdict="at least")) == []
    assert adversary.broken(row(weights="good", reach_p=0.8)) == ["good"]


def test_the_search_goes_on_where_it_ended_and_follows_what_broke(tmp_path):
    def measure(cell):
        recipe, place = cell.name.split("#")
        i = int(place.split(".")[1])
        return row(cell.key, truth=9.0 if i == 0 else 1.0, recipe=recipe, of_seed=0, **{"try": i})

    options = {"measure": measure, "version": 3}
    assert adversary.search(4, "after", folder=tmp_path / "once", **options) == 1
    adversary.search(2, "after", folder=tmp_path / "twice", **options)
    adversary.search(4, "after", folder=tmp_path / "twice", **options)
    once, twice = (results.read(adversary.SOURCE, "after", tmp_path / name) for name in ("once", "twice"))
    assert once == twice
    first = once[0]["recipe"].split(">")[0]
    assert all(once[i]["recipe"].startswith(first) for i in (1, 3))


# Tables


def test_the_table_says_where_there_are_no_results(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    results.write([row("a|10x10"), row("b|10x10", truth=9.0)], results.path("zoo", "after"))
    tables.print_markdown()
    printed = capsys.readouterr().out
    assert "no results yet" in printed
    assert '| coverage of "ok" |' in printed
    assert "50% [22%, 78%] (8)" in printed
    assert main([]) == 0
    assert "0 tried" in capsys.readouterr().out
