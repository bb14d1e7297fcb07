"""What is said of a result: a smoke run has no verdict, one seed is preliminary, and every cut is named."""

import json
from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from dice import Config, Dice
from vestige import runner
from vestige.cli import main
from vestige.runner.claims import Claim, Finding, Rule, Verdict, with_cuts
from vestige.runner.experiment import EARLIER, outdated
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report import gather, reproductions
from vestige.runner.report.page import report
from vestige.runner.report.reading import belonging

TRUE = Rule(Claim("it is a die", lambda mean: Finding(True)))
FALSE = Rule(Claim("it is a coin", lambda mean: Finding(False)), Claim("it is a stone", lambda mean: Finding(False)))


class Long(Dice):
    """A die of which much is cut."""

    cut: ClassVar = {"laptop": "few throws; a small table; one hand; wooden dice; no witness"}


def thrown(preset, seeds, experiment=None, **changed):
    """Records of dice as `vestige run` leaves them."""
    experiment = experiment or Dice()
    config = replace(experiment.presets[preset], **changed)
    made = [experiment.run(arm, seed, lambda *a: None) for seed in range(seeds) for arm in experiment.arms(config)]
    command = f"run dice --preset {preset} --seeds {seeds}" + "".join(f" --set {k}={v}" for k, v in changed.items())
    return [replace(record, details={"command": command}) for record in made]


@pytest.mark.parametrize("rule", [TRUE, FALSE])
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_smoke_run_has_no_verdict_whatever_its_rule_says(monkeypatch, rule, seeds):
    monkeypatch.setattr(Dice, "rule", rule)
    said = Dice().verdict(thrown("smoke", seeds))
    assert str(said).startswith("no verdict: too small to judge.")
    assert not any(word in str(said) for word in ("Holds", "Does not hold", "reproduced", "partly"))
    assert Dice().by_rule(thrown("smoke", seeds)).word in ("reproduced", "not")


def test_a_smoke_run_is_known_by_its_configuration_too():
    bare = [replace(record, details={}) for record in thrown("smoke", 2)]
    assert Dice().verdict(bare).word == "no verdict"
    assert Dice().verdict(thrown("smoke", 2, bias=1.0)).word == "no verdict", "nor does another setting make it large"
    assert Dice().verdict([*thrown("laptop", 2), *bare]).word == "no verdict", "one small run is enough"
    assert Dice().verdict(thrown("laptop", 2)).word != "no verdict"
    mine = [Dice().record(Config(77), seed, values=bare[0].values) for seed in range(2)]
    assert Dice().verdict(mine).word != "no verdict", "a setting of no preset is judged"


def test_a_smoke_run_has_no_verdict_anywhere(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    smoke = ["run", "dice", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]
    assert main(smoke) == 0
    assert "No verdict: too small to judge." in capsys.readouterr().out
    assert main([*smoke, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["verdict"]["word"], found["verdict"]["claims"]) == ("no verdict", "too small to judge")
    page = report(gather([tmp_path]))
    assert (page.status.kind, page.status.word) == ("plain", "no verdict")
    assert page.answer == "Table 0 has no verdict: too small to judge."
    document = reproductions(tmp_path)
    assert "| **no verdict** | smoke | 1 |" in document["REPRODUCTIONS.md"]
    assert "1 row: 1 **no verdict** (too small to judge)." in document["REPRODUCTIONS.md"]
    assert "**no verdict**: too small to judge." in document["docs/reproductions/dice.md"]


@pytest.mark.parametrize(
    ("rule", "so_far"), [(TRUE, "reproduced so far, its claim holds"), (FALSE, "not so far, 0 of 2")]
)
def test_one_seed_is_preliminary_whatever_its_numbers_say(monkeypatch, rule, so_far):
    monkeypatch.setattr(Dice, "rule", rule)
    said = Dice().verdict(thrown("laptop", 1))
    assert said.word == "preliminary"
    assert str(said).startswith(f"preliminary, with 1 of 3 seeds and a hundredth of the throws: {so_far}")
    assert Dice().verdict(thrown("paper", 1)).word == "preliminary"
    assert Dice().verdict(thrown("laptop", 2)).word == Dice().by_rule(thrown("laptop", 2)).word != "preliminary"


@pytest.mark.parametrize(("of_two_seeds", "preliminary"), [((6,), True), ((6, 8), False)])
def test_a_second_seed_of_a_few_runs_does_not_settle_the_others(of_two_seeds, preliminary):
    def throw(sides, seed):
        return Dice().run(Config(sides=(sides,)), seed, lambda share, words: None)

    records = [throw(n, 0) for n in (6, 8, 10)] + [throw(n, 1) for n in of_two_seeds]
    assert (Dice().verdict(records).word == "preliminary") == preliminary


def threw(*means, **options):
    """Records whose dice had these means, a seed each."""
    records = thrown("laptop", len(means), **options)
    return [
        replace(r, values={"mean": torch.tensor(mean, dtype=torch.float64)})
        for r, mean in zip(records, means, strict=True)
    ]


class PerSeed(Dice):
    """A die of which every throw is judged."""

    rule = Rule(
        Claim("the mean is small", lambda means: Finding(sum(means) / len(means) < 3.6)),
        Claim("none is smaller still", lambda means: Finding(min(means) >= 3.3)),
        Claim("no large one is 4", lambda means: [Finding(m != 4, case=f"{m:g}") for m in means if m > 3.7]),
    )

    def facts(self, records):
        return [float(r.values["mean"]) for r in records]


def test_a_verdict_says_whether_it_stays_whichever_seed_is_left_out():
    said = Dice().verdict(threw(3.5, 3.5, 3.55))
    assert (said.word, said.hangs_on) == ("reproduced", ())
    assert said.why.startswith("Without any one of the 3 seeds the same claims hold.")


def test_a_verdict_says_on_which_seeds_it_hangs():
    said = Dice().verdict(threw(3.5, 3.5, 3.9))
    assert (said.word, said.hangs_on) == ("not", (2,))
    assert said.why.startswith("It hangs on single seeds: without seed 2 it is reproduced, its claim holds.")
    said = Dice().verdict(threw(3.3, 3.5, 3.75))  # in the mean 3.517
    assert (said.word, said.hangs_on) == ("reproduced", (0, 2))
    assert said.why.startswith("It hangs on single seeds: without seed 0 or 2 it is not, its claim does not hold.")


@pytest.mark.parametrize("seeds", [1, 2])
def test_of_one_or_two_seeds_none_is_left_out(seeds):
    said = Dice().verdict(threw(*[3.5, 3.9][:seeds]))
    assert said.hangs_on is None
    assert "Without any" not in said.why
    assert "hangs" not in said.why


def test_other_claims_under_the_same_word_are_told():
    said = PerSeed().verdict(threw(3.2, 3.6, 3.65, 3.65))
    assert (said.word, said.hangs_on, said.held) == ("partly", (), {"a": True, "b": False})
    assert said.why.startswith(
        "Without any one of the 4 seeds the verdict stays; other claims or cases hold without seed 0."
    )


def test_a_case_that_is_gone_with_its_seed_is_no_change():
    said = PerSeed().verdict(threw(3.4, 3.4, 3.4, 3.75))
    assert said.held == {"a": True, "b": True, "c 3.75": True}
    assert said.why.startswith("Without any one of the 4 seeds the same claims hold.")
    said = PerSeed().verdict(threw(3.2, 3.4, 4.0))
    assert (said.word, said.hangs_on, said.held) == ("not", (2,), {"a": True, "b": False, "c 4": False})
    assert "without seed 2 it is partly, 1 of 2 claims holds." in said.why


def test_the_index_counts_the_verdicts_that_stay(monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    for record in threw(3.5, 3.5, 3.9):
        record.save(tmp_path)
    index = reproductions(tmp_path)["REPRODUCTIONS.md"]
    assert "1 row: 1 **not**. The verdict of 0 of the 1 with three seeds or more stays whichever is left out." in index
    assert "| **not** | laptop | 3 | hangs on seed 2 |" in index


def test_a_verdict_names_what_was_cut_in_its_sentence(monkeypatch):
    monkeypatch.setattr(Dice, "rule", FALSE)
    said = Dice().verdict(thrown("laptop", 2))
    assert str(said).startswith(
        "not, with 2 of 3 seeds and a hundredth of the throws: 0 of 2 claims hold. Does not hold:"
    )
    assert said.sentence("table 0") == (
        "Table 0 is not reproduced, with 2 of 3 seeds and a hundredth of the throws: 0 of 2 claims hold."
    )
    whole = Dice().verdict(thrown("paper", 3))
    assert str(whole).startswith("not: 0 of 2 claims hold.")
    long = Long().verdict(thrown("laptop", 2, Long()))
    assert ", with 2 of 3 seeds, few throws and 4 more cuts (below): " in str(long)
    assert Long().cuts(thrown("laptop", 2, Long()))[1:] == Long.cut["laptop"].split("; ")


def test_seeds_that_not_all_runs_have_and_runs_that_are_missing_are_counted():
    class Two(Dice):
        """Two dice."""

        presets: ClassVar = Dice.presets | {"laptop": Config(sides=(6, 8))}

    records = thrown("laptop", 2, Two())
    assert Two().cuts(records)[0] == "2 of 3 seeds"
    assert Two().cuts(records[:-1])[0] == "1 to 2 of 3 seeds"
    assert Two().cuts(records[::2])[:2] == ["2 of 3 seeds", "1 of 2 runs of a seed"]


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        ([], ""),
        (["a"], "with a"),
        (["a", "b"], "with a and b"),
        (["a", "b", "c"], "with a, b and c"),
        (["a", "b, not c", "d"], "with a; b, not c; and d"),
        (["a", "b", "c", "d"], "with a, b and 2 more cuts (below)"),
    ],
)
def test_cuts_are_put_into_words(cuts, words):
    assert with_cuts(cuts) == words


def test_a_long_ground_does_not_stand_in_the_first_sentence():
    assert Verdict("not judged", "Only a has been run. More.").sentence("a") == "A is not judged: Only a has been run."
    assert Verdict("not judged", "x" * 200).sentence("a") == "A is not judged."


class Table(Dice):
    """A fair die, and a reference of eight sides that is thrown `reference` times."""

    name, item = "dice", "Table 0"
    reference = 100

    def arms(self, config):
        return [Config(config.throws, (6,)), Config(self.reference, (8,))]


class Figure(Table):
    """Shows both."""

    name, item = "dice-figure", "Figure 0"

    def config(self, config):
        return Table().config(config)


def test_a_figure_whose_reference_has_changed_since_is_shown_and_waits_for_it(monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "dice", Table())
    monkeypatch.setitem(EXPERIMENTS, "dice-figure", Figure())
    list(runner.run(runner.plan("dice", tmp_path, preset="laptop")))
    before = belonging("dice-figure", gather([tmp_path]))
    (records,) = before.values()
    assert len(records) == 4
    assert Figure().waits(records) == {}

    monkeypatch.setattr(Table, "reference", 150)
    after = belonging("dice-figure", gather([tmp_path]))
    assert [[r.id for r in own] for own in after.values()] == [[r.id for r in records]], "it is not dropped"
    why = Figure().verdict(records).why
    assert why.endswith("Waits for a new run of dice (this had throws=100; the preset has throws=150).")
    document = reproductions(tmp_path)["REPRODUCTIONS.md"]
    for item in ("Table 0", "Figure 0"):
        (row,) = [line for line in document.splitlines() if f"| {item} |" in line]
        assert row.endswith("| version 1, waits for dice |")


def test_runs_of_a_preset_that_has_changed_as_a_whole_are_shown_without_the_cuts_of_today(monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "dice", Table())
    monkeypatch.setitem(EXPERIMENTS, "dice-figure", Figure())
    made = list(runner.run(runner.plan("dice", tmp_path, preset="laptop")))
    command = "vestige run dice --preset laptop --seeds 2"
    records = [replace(f.record, details=f.record.details | {"command": command}) for f in made]
    assert not Table().earlier(records)

    monkeypatch.setattr(Table, "arms", lambda self, config: [Config(7, (6,)), Config(9, (8,))])
    assert Table().earlier(records)
    assert Table().cuts(records)[-1] == EARLIER
    assert "the preset has other settings now" in Table().verdict(records).why
    assert [len(own) for own in belonging("dice-figure", records).values()] == [4], "a figure is not dropped"
    own = [replace(r, details={"command": f"{command} --set throws=5"}) for r in records]
    assert not Table().earlier(own)  # settings of somebody's own
    assert EARLIER not in Table().cuts(own)
    assert belonging("dice-figure", own) == {}


def test_what_was_never_run_has_nothing_in_its_place():
    now = {"row": "joint", "epochs": 4}
    assert outdated([now], [now]) == []
    assert outdated([now], [{"row": "joint", "epochs": 8}, {"row": "ewc", "epochs": 4}])[0][1]["epochs"] == 8
    assert outdated([now], [{"row": "ewc", "epochs": 4}]) == [(now, None)]
