"""Counting on made-up cells, resuming, what the peer is given, and that seeds that choose do not report."""

import json
import math

import numpy as np
import pytest
import torch
from benchmarks.policy import CHOOSE, REPORT, Cell, Judged

from benchmarks import fitted_q, policy
from vestige.policy import GaussianPolicy


def row(which: str = "near", seed: int = 0, truth: float = 10.0, spread: float = 2.0, **estimates) -> dict:
    """A stored cell; estimates are (value, low, high) or (value, low, high, verdict)."""
    known = {}
    for name, (value, low, high, *verdict) in estimates.items():
        known[name] = {"value": value, "low": low, "high": high, "verdict": verdict[0] if verdict else "ok"}
    facts = {"cell": f"{which}|{seed}", "which": which, "seed": seed, "truth": truth, "truth_se": 0.1}
    return facts | {"spread": spread, "cpu": 3.0, "estimates": known}


def test_cells_are_enough_and_seeds_that_choose_are_others():
    wanted = policy.cells(REPORT)
    assert len(wanted) >= 24
    assert len({cell.environment for cell in wanted}) >= 3
    assert not set(REPORT) & set(CHOOSE)
    assert min(CHOOSE) >= 100


def test_errors_are_in_deviations_and_what_is_refused_has_none():
    found = [
        Judged("e", "near", "a", 10.0, 2.0, 11.0, math.nan, math.nan, "ok"),
        Judged("e", "far", "b", 10.0, 4.0, 4.0, math.nan, math.nan, "ok"),
        Judged("e", "far", "c", 10.0, 4.0, math.nan, math.nan, math.nan, "refused"),
    ]
    assert policy.mean_error(found) == pytest.approx((0.5 + 1.5) / 2)
    assert policy.bias(found) == pytest.approx((0.5 - 1.5) / 2)


def test_coverage_counts_intervals_that_are_promised_alone():
    ends = [(9, 11, "ok"), (10.5, 12, "ok"), (9, 11, "at least"), (math.nan, math.nan, "ok")]
    found = [Judged("e", "near", str(i), 10.0, 1.0, 10.0, *one) for i, one in enumerate(ends)]
    assert policy.coverage(found) == (1, 2)
    found.append(found[-1]._replace(withdrawn=(9.5, 10.5)))
    assert policy.coverage(found) == (1, 2)
    assert policy.coverage(found, withdrawn=True) == (2, 3)
    assert policy.coverage([found[1]._replace(ran=11.0)]) == (1, 1)  # of the policy that ran


def test_a_run_stores_each_cell_goes_on_and_tables_are_of_their_own_seeds(tmp_path, monkeypatch):
    asked = []

    def measure(cell: Cell, _) -> dict:
        asked.append(cell)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return row(cell.which, cell.seed, model=(11.0, 9.0, 12.0), per_decision=(None, None, None, "refused"))

    monkeypatch.setattr(policy, "TASKS", {"E": policy.Task((1, 2, 3))})
    wanted = policy.cells([1, 0, 100])
    with pytest.raises(KeyboardInterrupt):
        policy.run("after", wanted, tmp_path, tmp_path, measure)
    assert policy.run("after", wanted, tmp_path, tmp_path, measure) == 4
    assert policy.run("after", wanted, tmp_path, tmp_path, measure) == 0
    cells = [one["cell"] for one in policy.stored("after", "E", tmp_path)]
    assert cells == ["near|0", "far|0", "near|1", "far|1", "near|100", "far|100"]
    first = policy.estimate_rows(REPORT, tmp_path)
    assert [line[:5] for line in first] == [
        ["after", "model", "4", "4", "0.500"],
        ["after", "per_decision", "4", "0", "-"],
    ]
    assert first[0][8].startswith("1.00 [")
    assert policy.estimate_rows(CHOOSE, tmp_path)[0][2] == "2"
    assert policy.main(["--results", str(tmp_path), "--markdown"]) == 0


def test_numbers_are_rounded_and_json_alone():
    told = policy.rounded({"a": [1 / 3, math.nan, "x", True, 3], "b": {"c": -math.inf}})
    assert told == {"a": [0.333333, None, "x", True, 3], "b": {"c": None}}
    json.dumps(told, allow_nan=False)


def test_what_is_stored_is_read():
    for name in policy.TASKS:
        for edition in (*policy.EDITIONS, policy.PEER):
            for one in policy.stored(edition, name):
                assert math.isfinite(one["truth"])
                assert one["seed"] in (*REPORT, *CHOOSE)


def test_the_peer_gets_the_steps_of_the_horizon_and_draws_of_the_policy():
    episodes = np.repeat([4, 7], [5, 3])
    logs = {"observations": np.ones((8, 2)), "actions": np.zeros((8, 1)), "rewards": np.arange(8.0)}
    told = fitted_q.timed(logs | {"episodes": episodes}, 4)
    assert told["observations"][:, -1].tolist() == [0, 0.25, 0.5, 0.75, 0, 0.25, 0.5]
    assert told["terminals"].tolist() == [0, 0, 0, 1, 0, 0, 1]
    assert told["rewards"].tolist() == [0, 1, 2, 3, 5, 6, 7]
    wide, low, high = torch.full((2,), 0.5), torch.tensor([-0.3]), torch.tensor([0.4])
    own = GaussianPolicy.initial(2, 1, hidden=(8,), log_std=-20.0, seed=1)
    own = GaussianPolicy(own.weights, own.biases, own.log_std, shift=wide, scale=wide, clip=1.5, low=low, high=high)
    seen = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    timed = torch.cat([seen, torch.zeros(50, 1)], 1)
    drawn = fitted_q.Drawn(fitted_q.arrays(own), 0).predict_best_action(timed)
    assert torch.allclose(drawn, own.act(seen, generator=torch.Generator().manual_seed(0)), atol=1e-5)
    assert float(drawn.std()) > 0
