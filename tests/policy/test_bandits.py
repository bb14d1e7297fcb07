"""Bandits: estimates against sums over finite contexts, ends against their own definition, bounds, and refusals."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks.bandits import REPORTED, drawn
from scipy.stats import t as student
from sklearn.linear_model import LinearRegression

from vestige.core import InputError
from vestige.policy import BanditLogs, evaluate_bandit
from vestige.policy.bandits import _interval, bernstein, influence, rewards_model

# Two contexts, three actions; everything in twelfths, so that a log of 432 rows has every share exactly.
CONTEXTS = np.array([1 / 3, 2 / 3])
LOGGING = np.array([[1 / 2, 1 / 4, 1 / 4], [1 / 12, 5 / 12, 1 / 2]])
POLICY = np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]])
MEANS = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 4.0]])
TRUTH = float((CONTEXTS[:, None] * POLICY * MEANS).sum())


def exact(rows: int = 432, noise: float = 1.0) -> tuple[BanditLogs, np.ndarray]:
    """A log with the shares of its law, rewards half above and half below their means."""
    x, a, r = [], [], []
    for i, j in np.ndindex(2, 3):
        count = rows * CONTEXTS[i] * LOGGING[i, j]
        assert count == pytest.approx(round(count))
        assert round(count) % 2 == 0
        x += [i] * round(count)
        a += [j] * round(count)
        r += [MEANS[i, j] + noise, MEANS[i, j] - noise] * (round(count) // 2)
    logs = BanditLogs.of(a, r, LOGGING[x, a], contexts=np.array(x, float))
    return logs, POLICY[x]


def sampled(n: int, seed: int, logging: np.ndarray = LOGGING) -> tuple[BanditLogs, np.ndarray]:
    g = np.random.default_rng(seed)
    x = g.choice(2, n, p=CONTEXTS)
    a = (g.random((n, 1)) > logging[x].cumsum(1)).sum(1)
    r = (g.random(n) < 0.2 + 0.1 * MEANS[x, a]).astype(float)
    return BanditLogs.of(a, r, logging[x, a], contexts=x[:, None], actions_known=3), POLICY[x]


# Estimates


def test_a_log_with_the_shares_of_its_law_gives_the_sum_over_contexts():
    logs, policy = exact()
    found = evaluate_bandit(logs, policy)
    for name in ("ips", "snips", "dr"):
        assert found.estimates[name].value == pytest.approx(TRUTH, abs=1e-9 if name != "dr" else 0.02)
        assert found.estimates[name].verdict == "ok"
    assert found.mean_weight.value == pytest.approx(1)
    assert found.estimates["logged"].value == pytest.approx(float((CONTEXTS[:, None] * LOGGING * MEANS).sum()))


def test_doubly_robust_is_what_a_loop_over_rows_says_and_exact_with_an_exact_model():
    logs, policy = sampled(50, 0)
    q = torch.rand(50, 3, dtype=torch.float64)
    w = np.array([policy[i, a] / p for i, (a, p) in enumerate(zip(logs.actions, logs.propensities, strict=True))])
    terms = [
        sum(policy[i, b] * float(q[i, b]) for b in range(3))
        + w[i] * (float(logs.rewards[i]) - float(q[i, int(logs.actions[i])]))
        for i in range(50)
    ]
    pi = torch.from_numpy(policy)
    found = influence(torch.from_numpy(w), logs.rewards, q, pi, logs.actions)
    assert found["dr"][0] == pytest.approx(np.mean(terms))
    assert found["dr"][1].numpy() == pytest.approx(np.array(terms) - np.mean(terms))
    seen = torch.from_numpy(MEANS)[logs.contexts[:, 0].long()]
    noiseless = seen.gather(1, logs.actions[:, None]).squeeze(1)
    right = influence(torch.from_numpy(w), noiseless, seen, pi, logs.actions)
    assert right["dr"][0] == pytest.approx(float((pi * seen).sum(1).mean()))


def test_influence_of_the_ratio_is_its_change_when_a_row_goes():
    logs, policy = sampled(40, 1)
    w = torch.from_numpy(policy).gather(1, logs.actions[:, None]).squeeze(1) / logs.propensities
    value, d = influence(w, logs.rewards, torch.zeros(40, 3).double(), torch.from_numpy(policy), logs.actions)["snips"]
    for i in (0, 7, 39):
        rest = torch.arange(40) != i
        without = float((w * logs.rewards)[rest].sum() / w[rest].sum())
        assert 40 * (value - without) == pytest.approx(float(d[i]))


def test_the_model_of_a_row_has_not_learnt_from_it():
    class Memory(LinearRegression):
        seen = []  # noqa: RUF012

        def fit(self, x, y):
            self.rows = set(map(tuple, x))
            return super().fit(x, y)

        def predict(self, x):
            own = {row[:1] for row in self.rows}
            assert not any(tuple(row[:1]) in own for row in x)
            Memory.seen.append(len(x))
            return super().predict(x)

    g = np.random.default_rng(0)
    logs = BanditLogs.of(g.integers(0, 2, 60), g.normal(size=60), np.full(60, 0.5), contexts=g.normal(size=60))
    evaluate_bandit(logs, [0.5, 0.5], reward_model=Memory(), folds=4)
    assert sum(Memory.seen) == 2 * 60


def test_the_ridge_finds_rewards_that_are_linear_within_an_action():
    g = np.random.default_rng(0)
    x, a = g.normal(size=(600, 2)), g.integers(0, 3, 600)
    slopes, heights = g.normal(size=(3, 2)), g.normal(size=3)
    means = x @ slopes.T + heights
    logs = BanditLogs.of(a, means[np.arange(600), a] + 0.01 * g.normal(size=600), np.full(600, 1 / 3), contexts=x)
    q = rewards_model(logs, 5, None, torch.Generator().manual_seed(0))
    assert np.abs(q.numpy() - means).max() < 0.05


# Intervals


def test_ends_are_where_halls_transformation_reaches_students_quantiles():
    d = torch.tensor([3.0, -1.0, -1.0, -0.5, -0.5, 0.0, 0.0, 0.0], dtype=torch.float64)
    found, n = _interval(2.0, d, 0.9), len(d)
    terms = np.append(d.numpy(), 3.0)  # the worst row twice
    squares = (terms**2).sum()
    error, carriers = math.sqrt(squares / n / (n - 1)), squares**2 / (terms**4).sum()
    assert found.std_error == pytest.approx(error)
    assert found.details["carriers"] == pytest.approx(carriers)
    skew = float((d**3).mean()) / (squares / n) ** 1.5

    def g(t: float) -> float:
        return t + skew * t**2 / (3 * math.sqrt(n)) + skew**2 * t**3 / (27 * n) + skew / (6 * math.sqrt(n))

    quantile = student.ppf(0.95, carriers)
    assert g((2.0 - found.low) / error) == pytest.approx(quantile)
    assert g((2.0 - found.high) / error) == pytest.approx(-quantile)
    assert found.high - 2.0 > 2.0 - found.low  # the tail is above


def test_what_is_promised_holds_in_families_that_chose_nothing():
    promised, held, unsupported = 0, 0, []
    for number, family in itertools.product(range(12), REPORTED):
        problem, x, a, r = drawn(family, 300, 10_000 + number)
        known = problem.rewards.shape[1]
        logs = BanditLogs.of(a, r, problem.logging[x, a], contexts=problem.seen[x], actions_known=known)
        found = evaluate_bandit(logs, problem.policy[x], bounds=(0, 1), seed=number)
        for one in (found.estimates[name] for name in ("dr", "snips", "ips")):
            promised += one.verdict != "refused"
            held += one.low <= problem.truth <= one.high
            missing = float((problem.contexts[:, None] * problem.policy * (problem.logging == 0)).sum())
            unsupported.append((missing > 0.3, one.verdict == "ok"))
    assert promised > 150
    assert held >= 0.9 * promised
    assert any(much for much, _ in unsupported)
    assert not any(much and ok for much, ok in unsupported)  # a little may not show


def test_bounds_are_maurers_and_pontils_at_the_best_limit_of_the_weights():
    g = torch.Generator().manual_seed(0)
    w, r = 2 * torch.rand(2000, generator=g).double(), torch.rand(2000, generator=g).double()
    low, high = bernstein(w, r, (0.0, 2.0), 0.9)
    far = math.log(2 / (0.1 / 2 / 7))

    def least(gain, tau):
        z = w.clamp(max=tau) * gain
        return z.mean() - math.sqrt(2 * z.var() * far / 2000) - 7 * 2 * tau * far / (3 * 1999)

    assert low == pytest.approx(max(float(least(r, tau)) for tau in (1, 2, 5)))
    assert high == pytest.approx(2 - max(float(least(2 - r, tau)) for tau in (1, 2, 5)))
    assert low < float((w * r).mean()) < high


# Verdicts


def test_an_action_that_the_logs_never_took_is_refused_or_bounded():
    logging = np.array([[2 / 3, 1 / 3, 0.0], [1 / 2, 1 / 2, 0.0]])
    logs, policy = sampled(3000, 0, logging)
    found = evaluate_bandit(logs, policy)
    assert list(found.report["never_logged"]) == ["2"]
    assert found.report["never_logged"]["2"] == pytest.approx(policy[:, 2].mean())
    for name in ("dr", "snips", "ips"):
        assert found.estimates[name].verdict == "refused"
        assert "never took ('2')" in found.estimates[name].reason
    truth = float((CONTEXTS[:, None] * POLICY * (0.2 + 0.1 * MEANS)).sum())
    bounded = evaluate_bandit(logs, policy, bounds=(0, 1)).estimates["dr"]
    assert bounded.verdict == "at least"
    assert 0 < bounded.low < truth < bounded.high < 1


def test_support_that_is_missing_in_one_context_shows_in_the_mean_weight():
    logs, policy = sampled(2000, 0, np.array([[0.0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]]))
    found = evaluate_bandit(logs, policy)
    assert not found.report["never_logged"]
    assert found.estimates["dr"].verdict == "refused"
    assert "hardly or not in the logs" in found.warnings[0]


def test_propensities_that_are_too_small_are_refused_even_with_bounds():
    logs, policy = sampled(2000, 0)
    wrong = BanditLogs.of(logs.actions, logs.rewards, logs.propensities * 0.7, contexts=logs.contexts)
    found = evaluate_bandit(wrong, policy, bounds=(0, 1))
    assert {found.estimates[name].verdict for name in ("dr", "snips", "ips")} == {"refused"}
    assert "propensities are not those" in found.warnings[0]
    assert found.estimates["logged"].verdict == "ok"


def test_weights_of_few_rows_and_rewards_that_are_all_alike_promise_no_interval():
    few = BanditLogs.of([0] * 95 + [1] * 5, [0.0, 1.0] * 50, [0.95] * 95 + [0.05] * 5)
    assert "worth" in evaluate_bandit(few, [0.0, 1.0]).estimates["ips"].reason
    alike = BanditLogs.of([0, 1] * 50, np.zeros(100), np.full(100, 0.5))
    found = evaluate_bandit(alike, [0.5, 0.5])
    assert {one.verdict for one in found.estimates.values()} == {"refused"}
    bounded = evaluate_bandit(alike, [0.5, 0.5], bounds=(0, 1)).estimates
    assert {one.verdict for one in bounded.values()} == {"at least"}
    assert all(one.low == 0 < one.high < 1 for one in bounded.values())


def test_the_same_seed_gives_the_same_numbers_and_arguments_stay():
    logs, policy = sampled(100, 2)
    before = policy.copy()
    first, second = (evaluate_bandit(logs, policy, seed=3).to_json() for _ in range(2))
    assert first == second
    assert (policy == before).all()


# The door


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"propensities": [0.5, 0.0]}, "'propensities' of BanditLogs must be from 1e-12 to 1"),
        ({"propensities": [0.5, 1.2]}, "Got 1.2 in row 1"),
        ({"propensities": [0.5, math.nan]}, "must be finite"),
        ({"rewards": [1.0, math.inf]}, "must be finite"),
        ({"rewards": [1.0, 1e39]}, "no larger than 3.4e"),
        ({"rewards": [1.0]}, "must be at least 2 long"),
        ({"actions": [0, 1, 1]}, "'actions' of BanditLogs must be 2 long"),
        ({"actions": [0, -1]}, "must be 0 or larger"),
        ({"actions": [0, 0.5]}, "must be whole numbers"),
        ({"actions_known": 1}, "whole numbers below 1"),
        ({"names": ["a", "b"]}, "among those that the policy knows: a, b. Got '0' in row 0"),
        ({"names": ["0", "0"]}, "different from each other"),
        ({"contexts": [1.0, 2.0, 3.0]}, "as many rows as 'rewards'"),
    ],
)
def test_bad_logs_are_refused_in_a_sentence(change, said):
    given = {"actions": [0, 1], "rewards": [1.0, 0.0], "propensities": [0.5, 0.5]} | change
    with pytest.raises(InputError, match=said):
        BanditLogs.of(given.pop("actions"), given.pop("rewards"), given.pop("propensities"), **given)


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        ([0.5, 0.4], {}, "sum to 1 in every row. Got 0.9 in row 0"),
        ([1.5, -0.5], {}, "between 0 and 1. Got 1.5 of action '0'"),
        ([math.nan, 1.0], {}, "must be finite"),
        ([0.2, 0.3, 0.5], {}, "each of 2 actions in each of 4 rows"),
        ([0.5, 0.5], {"bounds": (1, 0)}, "the first below the second"),
        ([0.5, 0.5], {"bounds": (0, 0.5)}, "around every logged reward"),
        ([0.5, 0.5], {"bounds": (0, math.inf)}, "finite"),
        ([0.5, 0.5], {"level": 1.0}, "'level' of policy.evaluate_bandit"),
        ([0.5, 0.5], {"folds": 1}, "'folds' of policy.evaluate_bandit"),
    ],
)
def test_bad_policies_and_options_are_refused_in_a_sentence(policy, options, said):
    logs = BanditLogs.of([0, 1, 0, 1], [1.0, 0.0, 0.0, 1.0], [0.5] * 4)
    with pytest.raises(InputError, match=said):
        evaluate_bandit(logs, policy, **options)


def test_a_policy_that_takes_none_of_the_logged_actions_is_refused():
    logs = BanditLogs.of([0, 0, 0], [1.0, 0.0, 1.0], [0.5] * 3, actions_known=2)
    with pytest.raises(InputError, match="would take at least one of the logged actions"):
        evaluate_bandit(logs, [0.0, 1.0])


# Files


def written(path, **change):
    logs, policy = sampled(60, 0)
    columns = {"action": [("a", "b", "c")[i] for i in logs.actions], "reward": logs.rewards.numpy()}
    columns |= {"propensity": logs.propensities.numpy(), "context_x": logs.contexts[:, 0].numpy(), "note": "hello"}
    columns |= {f"policy_{name}": policy[:, i] for i, name in enumerate("abc")}
    frame = pd.DataFrame({key: value for key, value in (columns | change).items() if value is not None})
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_gives_what_arrays_do(tmp_path, ending):
    logs, policy = BanditLogs.read(written(tmp_path / f"logs{ending}"))
    own, given = sampled(60, 0)
    assert logs.names == ("a", "b", "c")
    assert evaluate_bandit(logs, policy).estimates["dr"].value == pytest.approx(
        evaluate_bandit(own, given).estimates["dr"].value
    )


def test_actions_may_be_whole_numbers(tmp_path):
    numbered = {f"policy_{i}": 1 / 3 for i in range(3)} | {f"policy_{name}": None for name in "abc"}
    logs, _ = BanditLogs.read(written(tmp_path / "logs.csv", action=[0, 1, 2] * 20, **numbered))
    assert logs.names == ("0", "1", "2")
    assert logs.actions.tolist() == [0, 1, 2] * 20


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"propensity": None}, "The 'propensity' of logs.csv must be a column of the table"),
        ({"policy_a": None, "policy_b": None, "policy_c": None}, "a column policy_ACTION for every action"),
        ({"policy_c": None}, "among those that the policy knows: a, b"),
        ({"propensity": 0.0}, "must be from 1e-12 to 1"),
        ({"policy_a": 0.9}, "sum to 1 in every row"),
        ({"context_x": "red"}, "The 'context_x' of logs.csv must be numbers. Got text such as 'red'"),
        ({"reward": [1.0, None] * 30}, "reward"),
        ({"action": ["a", None] * 30}, "The 'action' of logs.csv must be known in every row"),
    ],
)
def test_bad_tables_are_refused_in_a_sentence(tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        BanditLogs.read(written(tmp_path / "logs.csv", **change))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"logs that end in \.csv"):
        BanditLogs.read(tmp_path / "logs.npz")
