"""LFIW's policy evaluation: a smoke run without MuJoCo, the table as printed, the rules on planted Records."""

import math

import pytest
import torch
from scipy.stats import spearmanr

from smoke import read, run_smoke
from vestige import runner
from vestige.core.errors import InputError
from vestige.policy import Calibration, Estimate
from vestige.policy.environments import Truth
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.lfiw import table3 as lfiw_policies
from vestige_papers.lfiw import table3 as lfiw_table3
from vestige_papers.lfiw.table3 import CHEETAH, HUMANOID, SWIMMER

TABLE, FIGURE = EXPERIMENTS["lfiw-table3"], EXPERIMENTS["lfiw-fig3"]
pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    pytest.importorskip("stable_baselines3", reason="needs pip install 'vestige[policy]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VESTIGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        out = tmp_path_factory.mktemp("runs")
        return out, run_smoke("lfiw-table3", out)


@pytest.mark.parametrize("name", ["lfiw-table3", "lfiw-fig3"])
def test_one_set_of_records_serves_both(name, smoke):
    out, records = smoke
    again = [unit.finished() for unit in runner.plan(name, out, preset="smoke")]
    assert [r.id for r in again] == [r.id for r in records]
    lines, figures = read(name, again)
    assert {x.label for x in lines} == {"Pendulum-v1"}
    assert len(figures) == (name == "lfiw-fig3")
    assert all(path.stat().st_size < 50_000 for path in out.rglob("*.json"))


def test_a_unit_holds_what_the_table_reads(smoke):
    (record,) = smoke[1]
    values = record.values
    assert {"truth", *lfiw_table3.ROWS} <= set(values)
    assert values["lfiw.h"].tolist() == list(range(0, 21, 2))
    assert values["lfiw.by_classifier"].shape == (2, 11)
    # H = 0 is the plain model, and the ends of the curves are the estimates.
    for key in ("lfiw", "lfiw_tempered"):
        assert float(values[f"{key}.values"][0]) == pytest.approx(float(values["model"][0]))
        assert float(values[f"{key}.values"][-1]) == pytest.approx(float(values[key][0]))
    assert float(values["logged"][0]) != float(values["per_decision"][0])  # two policies, not one
    assert record.details["reward"] == "known"
    error, as_near = values["deals"].tolist()
    assert error > 0
    assert 0 <= as_near <= 1


def test_table_3_as_printed():
    assert lfiw_table3.PAPER_ERRORS == {
        "Swimmer-v5": (0.1, 16.5, 23.3, 34.9),
        "HalfCheetah-v5": (2.56, 1.24, 49.7, 78.5),
        "HumanoidStandup-v5": (53, 74, 4890, 7335),
    }
    assert lfiw_table3.PAPER == {
        "Swimmer-v5": (36.7, 16.5, 38.9, 57.6),
        "HalfCheetah-v5": (185.0, 129.7, 149.6, 152.0),
        "HumanoidStandup-v5": (14170, 8504, 9515, 10049),
    }


def test_the_presets():
    paper = TABLE.presets["paper"]
    assert paper.environments == (SWIMMER, CHEETAH, HUMANOID)
    assert (paper.behaviour_steps, paper.evaluated_steps) == (500_000, 1_000_000)
    assert (paper.hidden, paper.steps, paper.batch) == ((500, 500, 500), 100_000, 128)
    assert (paper.horizon, paper.trajectories, paper.classifiers) == (100, 100, 5)
    assert [arm.evaluated_steps for arm in TABLE.arms(paper)] == [1_000_000] * 3
    laptop = runner.configured(TABLE, "laptop", {"environments": [CHEETAH, HUMANOID]})
    cheetah, humanoid = TABLE.arms(laptop)
    assert (humanoid.behaviour_steps, humanoid.evaluated_steps) == laptop.humanoid
    assert (cheetah.behaviour_steps, cheetah.evaluated_steps) == (100_000, 200_000)
    assert TABLE.arms(cheetah) == [cheetah]
    with pytest.raises(InputError, match="'behaviour_steps' of lfiw-table3 must be fewer than"):
        TABLE.arms(runner.configured(TABLE, "laptop", {"behaviour_steps": 200_000}))


def planted(**by_environment):
    """Records of two seeds, 100 as the truth; each row's estimate is 100 off by what is given, a curve ends with it."""
    records = []
    for name, off in by_environment.items():
        (arm,) = TABLE.arms(runner.configured(TABLE, "laptop", {"environments": [name]}))
        for seed in (0, 1):
            side = 1 if seed else -1  # errors do not cancel over seeds
            values = {"truth": number([100.0, 1.0])}
            for key in (*lfiw_table3.ROWS, "behaviour"):
                values[key] = number([100.0 + side * off.get(key, 10.0), 0.0, 0.0])
            # Deals of the weights at random lie around the plain model, by `deals` to either side.
            centre, reach = 100.0 + side * off.get("model", 10.0), off.get("deals", (0.5, 0.5))[seed]
            values["shuffled"] = number([centre, centre - reach, centre + reach])
            values["deals"] = number([11.0, 0.04])
            for key in ("lfiw", "lfiw_tempered"):
                curve = off.get(f"{key}.curve", [10.0] * 10 + [off.get(key, 10.0)])
                values[f"{key}.values"] = 100 + side * number(curve)
                values[f"{key}.h"] = number(range(0, 101, 10))
                values[f"{key}.by_classifier"] = torch.stack([values[f"{key}.values"]] * 5)
                values[f"{key}.ess"] = values[f"{key}.alpha"] = torch.ones(11, dtype=torch.float64)
            records.append(TABLE.record(arm, seed, values=values, details={"outside": 0.25}))
    return records


def number(values):
    return torch.tensor(list(values), dtype=torch.float64)


@pytest.mark.parametrize(
    ("word", "cheetah", "swimmer"),
    [
        ("reproduced", {"lfiw_tempered": 5.0}, {"lfiw_tempered": 9.0}),
        ("reproduced", {"lfiw_tempered": 5.0}, {}),  # no worse is enough elsewhere
        ("reproduced", {"lfiw_tempered": -5.0}, {}),  # beyond the truth, and nearer to it
        ("partly", {"lfiw_tempered": 5.1}, {}),  # not halved
        ("partly", {"lfiw_tempered": 5.0}, {"lfiw_tempered": 11.0}),  # harm elsewhere
        ("partly", {"lfiw_tempered": 12.0}, {"lfiw_tempered": 5.0}),
        ("not", {"lfiw_tempered": 10.0}, {"lfiw_tempered": 12.0}),
        ("not", {"lfiw_tempered": 4.0, "deals": (6.5, 6.5)}, {}),  # weights dealt at random come as far
        ("not", {"lfiw_tempered": 4.0, "deals": (6.5, 0.5)}, {}),  # one seed of two is not most
        ("partly", {"lfiw_tempered": 4.0, "deals": (6.5, 6.5)}, {"lfiw_tempered": 9.0}),
        ("not", {"lfiw_tempered": -11.0}, {}),  # beyond the deals, and beyond the truth by more
    ],
)
def test_table_3_is_judged_by_its_rule(word, cheetah, swimmer):
    assert TABLE.by_rule(planted(**{CHEETAH: cheetah, SWIMMER: swimmer})).word == word


def test_a_deal_at_random_is_no_gain_whatever_its_mean_is():
    """Deals and the truth as they are known: which come as near as the tempered value, and how far off is one."""
    deals = number([90.0, 95.0, 104.0, 110.0])
    own = Calibration(Estimate(7.0), Estimate(8.0), Estimate(-1.0), False)
    shuffled = Estimate(99.0, details={"range_low": 90.0, "range_high": 110.0})
    weighted = {"unweighted": Estimate(98.0), "lfiw_tempered": Estimate(106.0), "shuffled": shuffled}
    given = {"model": Estimate(97.0, 96.0, 98.0)}
    nothing = lfiw_policies.Evaluation(given, own, 10, 0.0, "good", (), weighted, {}, deals, {})
    values = lfiw_policies.values_of(Truth(100.0, 1.0, number([100.0])), nothing)
    assert values["deals"].tolist() == pytest.approx([(10 + 5 + 4 + 10) / 4, 0.5])
    # The plain model of the table is the one that the weights are of.
    assert float(values["model"][0]) == 98.0
    assert values["headline"].tolist() == [97.0, 96.0, 98.0]
    assert values["shuffled"].tolist() == [99.0, 90.0, 110.0]
    assert float(values["behaviour"][0]) == 7.0


def test_the_papers_gains_are_less_than_its_errors():
    gains = lfiw_table3.paper_gains()
    assert [round(gain, 1) for gain in gains.values()] == [0.8, 0.4, 0.2]
    assert gains[SWIMMER] == pytest.approx((38.9 - 16.5) / math.hypot(16.5, 23.3))
    said = TABLE.by_rule(planted(**{CHEETAH: {}})).why
    assert (
        "by 0.8 on Swimmer-v5, 0.4 on HalfCheetah-v5, 0.2 on HumanoidStandup-v5 of their joint standard errors" in said
    )


def test_the_behaviour_policy_has_its_rows():
    lines = {(x.label, x.quantity): x for x in TABLE.lines(planted(**{CHEETAH: {"behaviour": 4.0, "logged": 1.0}}))}
    assert lines[CHEETAH, "behaviour policy, simulated"].ours == pytest.approx(100.0)
    assert lines[CHEETAH, "|simulated - logged|, behaviour policy"].ours == pytest.approx(3.0)


def test_without_halfcheetah_it_is_not_judged():
    assert TABLE.by_rule(planted(**{SWIMMER: {"lfiw_tempered": 1.0}})).word == "not judged"


def test_the_table_sets_errors_beside_those_in_print():
    lines = {(x.label, x.quantity): x for x in TABLE.lines(planted(**{CHEETAH: {"lfiw": 4.0}, HUMANOID: {}}))}
    assert lines[CHEETAH, "truth, evaluated policy"].paper == 185.0
    assert lines[CHEETAH, "LFIW, H = 0.8 T"].paper == 152.0
    assert lines[CHEETAH, "LFIW, H = 0.8 T"].ours == pytest.approx(100.0)
    assert lines[CHEETAH, "|error|, LFIW, H = T"].ours == pytest.approx(4.0)
    assert lines[CHEETAH, "|error|, LFIW, H = T"].paper == pytest.approx(35.4)
    assert lines[HUMANOID, "|error|, plain model"].paper == pytest.approx(5666)
    assert lines[CHEETAH, "|error|, fitted Q"].paper is None
    assert lines[CHEETAH, "steps beyond the logs (%)"].ours == 25.0
    assert lines[CHEETAH, "random orders that come as near (%)"].ours == pytest.approx(4.0)
    assert lines[CHEETAH, "|error|, shuffled weights, a single order"].ours == pytest.approx(11.0)


FALLING, RISING = [20.0 - h for h in range(11)], [10.0 + h for h in range(11)]
LATE = [10.0] + [12.0] * 9 + [9.0]  # ends below, but does not fall


@pytest.mark.parametrize(
    ("word", "cheetah", "swimmer"),
    [
        ("reproduced", {"lfiw.curve": FALLING}, {"lfiw.curve": FALLING}),
        ("partly", {"lfiw.curve": FALLING}, {"lfiw.curve": LATE}),
        ("partly", {"lfiw_tempered.curve": FALLING}, {"lfiw_tempered.curve": FALLING}),
        ("not", {"lfiw_tempered.curve": FALLING}, {"lfiw_tempered.curve": RISING}),
        ("not", {"lfiw.curve": RISING}, {"lfiw.curve": LATE}),
        ("not", {"lfiw.curve": [*FALLING[:-1], 21.0]}, {"lfiw.curve": RISING}),  # falls, and ends above
    ],
)
def test_figure_3_is_judged_by_its_rule(word, cheetah, swimmer):
    records = planted(**{CHEETAH: cheetah, SWIMMER: swimmer})
    assert FIGURE.by_rule(records).word == word
    assert set(FIGURE.figures(records)) == {f"lfiw-fig3-{CHEETAH}", f"lfiw-fig3-{SWIMMER}"}
    lines = {(x.label, x.quantity): x.ours for x in FIGURE.lines(records)}
    assert lines[CHEETAH, "|error|, LFIW, H = 30"] == pytest.approx(cheetah.get("lfiw.curve", [10.0] * 11)[3])


def test_rank_correlation_is_spearmans():
    x, y = number(range(6)), number([3.0, 1.0, 4.0, 1.0, 5.0, 9.0])
    assert lfiw_table3.rank_correlation(x, y) == pytest.approx(float(spearmanr(x, y).statistic))
    assert lfiw_table3.rank_correlation(x, -x) == pytest.approx(-1)
    assert lfiw_table3.rank_correlation(x, 0 * y) == 0


def test_errors_are_of_each_seed():
    records = planted(**{CHEETAH: {"model": 7.0}})
    assert lfiw_policies.errors(records, "model") == pytest.approx([7.0, 7.0])
    assert not math.isnan(lfiw_policies.errors(records, "logged")[0])
