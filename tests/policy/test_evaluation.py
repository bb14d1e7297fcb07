"""`evaluate` as a whole: a linear system whose values are known, and a model that is wrong in a known way."""

import json
import math
from dataclasses import replace

import pytest
import torch

from linear_system import System, linear_policy
from vestige.core import rng
from vestige.core.errors import InputError, VestigeError
from vestige.policy import Dynamics, GaussianPolicy, Logs, Settings, estimators, evaluate, picture
from vestige.policy.dynamics import Trajectories
from vestige.policy.environments import REWARDS
from vestige.policy.estimators import fitted_q, from_logs, from_weights
from vestige.policy.evaluation import TOO_SELDOM, choose_starts, reward_gap
from vestige.ratios import weights

SYSTEM = System.default()
WRONG = SYSTEM.biased([0.03, 0.03], 0.11)
BEHAVIOUR = linear_policy([[0.0, -0.2]], [0.0], 0.5)
TARGET = linear_policy([[0.1, -0.6]], [0.1], 0.3)
SMALL = Settings(hidden=(16,), steps=300, learning_rate=1e-2)
FAST = {"settings": SMALL, "trajectories": 400, "members": 2, "classifiers": 2}


@pytest.fixture(scope="module")
def logs():
    return SYSTEM.logs(BEHAVIOUR, 150, 20, seed=0)


@pytest.fixture(scope="module")
def found(logs):
    said = []
    result = evaluate(
        logs,
        TARGET,
        behaviour=BEHAVIOUR,
        rollouts="noise",
        diagnostics=True,
        horizon=20,
        reward=SYSTEM.reward,
        resamples=100,
        on_progress=lambda *heard: said.append(heard),
        **FAST,
    )
    assert said[0][0] == 0
    assert said[-1] == (1.0, "done")
    assert [share for share, _ in said] == sorted(share for share, _ in said)
    return result


def test_estimates_that_use_what_they_can_meet_the_truth(found):
    truth, behaviour = SYSTEM.value(TARGET, 20), SYSTEM.value(BEHAVIOUR, 20)
    for name in ("corrected", "model", "fitted_q"):
        assert found.estimates[name].value == pytest.approx(truth, abs=0.4 * abs(truth - behaviour)), name
    assert found.diagnostics["lfiw_tempered"].value == pytest.approx(truth, abs=0.4 * abs(truth - behaviour))
    assert found.estimates["logged"].low < behaviour < found.estimates["logged"].high
    assert list(found.estimates) == ["corrected", "model", "fitted_q", "doubly_robust", "per_decision", "logged"]
    assert list(found.diagnostics) == ["unweighted", "lfiw", "lfiw_tempered", "shuffled"]


def test_no_value_of_another_policy_has_an_interval(found):
    """That of the corrected value was measured to hold too seldom; it stands in the details."""
    corrected = found.estimates["corrected"]
    low, high = corrected.details["withdrawn"]
    assert low < SYSTEM.value(TARGET, 20) < high
    assert corrected.reason == TOO_SELDOM
    for name in ("corrected", "model", "fitted_q", "doubly_robust"):
        one = found.estimates[name]
        assert one.verdict == "spread"
        assert math.isnan(one.low)
        assert math.isnan(one.high)
        assert one.std_error > 0
    assert found.estimates["logged"].verdict == "ok"


def test_the_model_is_checked_on_the_policy_that_ran(found):
    checked = found.calibration
    assert checked.holds
    assert not checked.replayed
    assert checked.simulated.value == pytest.approx(SYSTEM.value(BEHAVIOUR, 20), abs=1.0)
    assert checked.gap.value == pytest.approx(checked.simulated.value - checked.logged.value)
    # The corrected value is the model's less the gap.
    assert found.estimates["corrected"].value == pytest.approx(found.estimates["model"].value - checked.gap.value)


def test_the_curve_begins_at_the_model_and_ends_at_the_estimate(found):
    for name, curve in found.curves.items():
        assert curve.hs == (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
        assert float(curve.values[0]) == pytest.approx(found.diagnostics["unweighted"].value)
        assert float(curve.values[-1]) == found.diagnostics[name].value
    assert float(found.curves["lfiw_tempered"].ess.min()) >= 40 - 1e-6


def test_its_json_is_plain(found):
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["verdict"] in ("good", "usable with care", "unreliable")
    assert len(plain["curves"]["lfiw"]["by_classifier"]) == 2
    assert plain["report"]["dynamics"]["reward"] == "known"
    assert plain["calibration"]["gap"]["value"] == found.calibration.gap.value
    assert len(plain["report"]["by_member"]["evaluated"]) == 2
    assert "permuted" not in plain
    assert len(found.permuted) == 100


def test_its_picture_tells_an_interval_from_a_spread(found):
    axes = picture(found, truth=-6.2).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:3] == ["policy that ran, simulated", "logged return", "corrected"]
    assert len(names) == 11
    assert len(axes.containers) == 1  # a bar with ends: the logged return
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    spreads = [e for e in (found.estimates | found.diagnostics).values() if e.verdict == "spread"]
    assert len(dotted) == len(spreads) + 1  # and the simulated policy that ran
    assert "return over 20 steps" in axes.get_xlabel()


@pytest.fixture(scope="module")
def learned(logs):
    return Dynamics(2, SMALL, reward=SYSTEM.reward).fit(logs, seed=0)


def test_dynamics_are_fitted_once_for_several_policies(found, learned, logs):
    options = {"horizon": 20, "trajectories": 400, "rollouts": "noise", "resamples": 20}
    again = evaluate(logs, TARGET, behaviour=BEHAVIOUR, dynamics=learned, **options)
    assert again.estimates["model"].value == found.estimates["model"].value
    assert again.estimates["corrected"].value == found.estimates["corrected"].value
    assert again.diagnostics == {}
    # The policy that ran, evaluated from its own logs, is worth what it earned.
    own = evaluate(logs, BEHAVIOUR, behaviour=BEHAVIOUR, dynamics=learned, **options)
    assert own.estimates["corrected"].value == pytest.approx(own.estimates["logged"].value)
    assert own.estimates["corrected"].std_error == pytest.approx(own.estimates["logged"].std_error)
    for wrong, sentence in (
        ({"dynamics": Dynamics()}, "were not fitted"),
        ({"dynamics": learned, "reward": SYSTEM.reward}, "'reward' of policy.evaluate must be left to the 'dynamics'"),
        ({"dynamics": learned, "settings": SMALL}, "'settings' of policy.evaluate must be left to the 'dynamics'"),
    ):
        with pytest.raises(VestigeError, match=sentence):
            evaluate(logs, TARGET, **options, **wrong)
    fewer = SYSTEM.logs(BEHAVIOUR, 5, 20, seed=0)
    with pytest.raises(InputError, match=r"fitted on these logs, of 100 transitions. Got dynamics of 3000"):
        evaluate(fewer, TARGET, dynamics=learned)


def test_without_the_policy_that_ran_its_actions_are_replayed(learned, logs):
    options = {"horizon": 20, "trajectories": 300, "rollouts": "noise", "resamples": 20}
    found = evaluate(logs, TARGET, dynamics=learned, **options)
    assert found.calibration.replayed
    # By brute force: every member replays every episode.
    rows, _ = logs.first(20)
    actions, initial = logs.actions[rows].repeat(2, 1, 1), logs.initial.repeat(2, 1)
    each = learned.replay(actions, initial, generator=rng.fork(0, "rollout"), rollouts="noise").returns()
    assert found.calibration.simulated.value == pytest.approx(float(each.mean()))
    change = found.estimates["model"].value - float(each.mean())
    assert found.estimates["corrected"].value == pytest.approx(found.estimates["logged"].value + change)


@pytest.mark.parametrize("given", [True, False])
def test_broken_dynamics_are_caught_where_the_truth_is_known(logs, given):
    """A model that drifts: the policy that ran earns less in it than in the logs, and no interval is promised."""
    broken = SYSTEM.biased([0.3, 0.0], 0.1).dynamics(2)
    broken.folds_ = torch.zeros(len(logs), dtype=torch.int64)
    options = {"horizon": 20, "rollouts": "noise", "resamples": 20, "behaviour": BEHAVIOUR if given else None}
    found = evaluate(logs, TARGET, dynamics=broken, **options)
    assert not found.calibration.holds
    assert found.verdict != "good"
    said = "The policy that ran earns" if given else "The logged actions earn"
    assert found.warnings[0].startswith(said)
    assert "the model is wrong where it can be checked" in found.warnings[0]
    assert all(found.estimates[name].verdict == "spread" for name in ("corrected", "model"))
    corrected = found.estimates["corrected"]
    assert corrected.reason == "no interval: the model does not reproduce the logs"
    assert corrected.details["withdrawn"][0] < corrected.value < corrected.details["withdrawn"][1]
    true = SYSTEM.dynamics(2)
    true.folds_ = broken.folds_
    fine = evaluate(logs, TARGET, dynamics=true, **options)
    assert abs(fine.calibration.gap.value) < 0.2 * abs(found.calibration.gap.value)
    if given:
        assert fine.calibration.holds
        low, high = fine.estimates["corrected"].details["withdrawn"]
        assert low < SYSTEM.value(TARGET, 20) < high


def test_replayed_actions_are_exact_where_nothing_is_random():
    """The true model of a system without noise earns in each episode what was logged; so no error is left."""
    quiet = replace(SYSTEM, noise=0.0)
    logs, true = quiet.logs(BEHAVIOUR, 40, 10, seed=0), quiet.dynamics(2)
    true.folds_ = torch.zeros(len(logs), dtype=torch.int64)
    found = evaluate(logs, TARGET, dynamics=true, horizon=10, resamples=20)
    assert found.report["rollouts"] == "mean"
    assert found.calibration.gap.value == pytest.approx(0, abs=1e-4)
    assert found.calibration.gap.std_error == pytest.approx(0, abs=1e-4)
    # Even so: with replayed actions intervals held less often.
    assert found.estimates["corrected"].verdict == "spread"
    assert found.estimates["corrected"].reason.startswith("no interval")


def test_auto_takes_the_rollouts_that_reproduce_the_logs(logs):
    """Means leave out what the noise of this system costs; without noise there is nothing to leave out."""
    true = SYSTEM.dynamics(2)
    true.folds_ = torch.zeros(len(logs), dtype=torch.int64)
    given = {"behaviour": BEHAVIOUR, "horizon": 20, "resamples": 20}
    found = evaluate(logs, TARGET, dynamics=true, **given)
    assert found.report["rollouts"] == "noise"
    means = evaluate(logs, TARGET, dynamics=true, rollouts="mean", **given)
    assert not means.calibration.holds
    assert abs(means.calibration.gap.value) > abs(found.calibration.gap.value)
    drawn = evaluate(logs, TARGET, dynamics=true, rollouts="noise", **given)
    assert found.estimates["model"].value == drawn.estimates["model"].value
    quiet = replace(SYSTEM, noise=0.0)
    calm = quiet.dynamics(2)
    calm.change_.deviation.fill_(0.5)  # a model that takes its own error for noise
    calm.folds_ = true.folds_
    found = evaluate(quiet.logs(BEHAVIOUR, 150, 20, seed=0), TARGET, dynamics=calm, **given)
    assert found.report["rollouts"] == "mean"
    assert found.calibration.holds


def test_replayed_episodes_that_were_cut_off_or_ended():
    """One is too short to compare, one ended early: each of the others still stands beside its own logged return."""
    quiet = replace(SYSTEM, noise=0.0)
    whole, true = quiet.logs(BEHAVIOUR, 12, 8, seed=0), quiet.dynamics(2)
    kept = ~((whole.episodes == 3) & (whole.steps >= 5)) & ~((whole.episodes == 6) & (whole.steps >= 4))
    ended = (whole.episodes == 6) & (whole.steps == 3)
    columns = (whole.observations, whole.actions, whole.rewards, whole.next_observations, whole.episodes)
    logs = Logs.of(*(column[kept] for column in columns), terminated=ended[kept].long())
    true.folds_ = torch.zeros(len(logs), dtype=torch.int64)
    found = evaluate(logs, TARGET, dynamics=true, horizon=8, resamples=10, trajectories=24)
    assert found.calibration.gap.n == 11
    assert found.calibration.gap.value == pytest.approx(0, abs=1e-4)
    assert found.calibration.gap.std_error == pytest.approx(0, abs=1e-4)


def test_auto_stays_with_means_that_reproduce_the_logs():
    """Though noise would come nearer by chance in some of these."""
    calm = replace(SYSTEM, noise=0.03)
    true = calm.dynamics(2)
    given = {"behaviour": BEHAVIOUR, "horizon": 5, "resamples": 10, "trajectories": 40}
    nearer = 0
    for seed in range(6):
        logs = calm.logs(BEHAVIOUR, 30, 5, seed=seed)
        true.folds_ = torch.zeros(len(logs), dtype=torch.int64)
        found, drawn = (
            evaluate(logs, TARGET, dynamics=true, rollouts=rollouts, seed=seed, **given)
            for rollouts in ("auto", "noise")
        )
        assert not found.calibration.holds or found.report["rollouts"] == "mean"
        nearer += abs(drawn.calibration.gap.value) < abs(found.calibration.gap.value)
    assert nearer > 0


def test_starts_are_whole_episodes_first_and_in_copies():
    logs = SYSTEM.logs(BEHAVIOUR, 6, 10, seed=0)
    short = (logs.episodes != 2) | (logs.steps < 7)
    kept = Logs.of(
        *(x[short] for x in (logs.observations, logs.actions, logs.rewards, logs.next_observations, logs.episodes))
    )
    starts = choose_starts(kept, 10, 15, torch.Generator().manual_seed(0))
    assert starts.episodes.tolist() == [0, 1, 3, 4, 5, 2]
    assert (starts.whole, starts.copies) == (5, 3)
    few = choose_starts(kept, 10, 4, torch.Generator().manual_seed(0))
    assert len(set(few.episodes.tolist())) == 4
    assert few.copies == 1


def test_exact_ratios_carry_the_whole_table_to_the_truth():
    s, u, r = WRONG.trajectories(TARGET, 20_000, 8, seed=0)
    log_ratio = SYSTEM.log_density(s[:, :-1], u, s[:, 1:]) - WRONG.log_density(s[:, :-1], u, s[:, 1:])
    simulated = Trajectories(s, u, r, torch.zeros(len(r), dtype=torch.int64), 0.0)
    found, _, permuted = from_weights(simulated, log_ratio[None], (0, 8), members=4, ess=0.2, resamples=50)
    truth, wrong = SYSTEM.value(TARGET, 8), WRONG.value(TARGET, 8)
    assert found["unweighted"].value == pytest.approx(wrong, abs=0.1)
    assert found["lfiw"].details["range_low"] < truth < found["lfiw"].details["range_high"]
    assert abs(found["lfiw_tempered"].value - truth) < 0.5 * abs(wrong - truth)
    assert found["shuffled"].value == pytest.approx(wrong, abs=0.1)
    ends = found["shuffled"].details
    assert ends["range_low"] < found["unweighted"].value < ends["range_high"]
    assert found["lfiw"].details["alpha"] == 1
    assert len(permuted) == 50
    assert float(permuted.mean()) == found["shuffled"].value
    # Each row has the tail of its own weights.
    found, *_ = from_weights(simulated, log_ratio[None], (0, 8), members=4, ess=0.6, resamples=50)
    assert found["lfiw"].details["pareto_k"] == weights.tail_index(log_ratio.sum(1))
    flat = weights.temper(log_ratio.sum(1), 0.6)
    assert (
        found["lfiw_tempered"].details["pareto_k"]
        == weights.tail_index(flat.log_weights)
        != found["lfiw"].details["pareto_k"]
    )
    # What is cut is tempered, and nothing else.
    found, *_ = from_weights(simulated, log_ratio[None], (0, 8), members=4, resamples=50, cut=0 * log_ratio[None])
    assert found["lfiw_tempered"].value == pytest.approx(found["unweighted"].value)
    assert found["lfiw"].details["range_low"] < truth < found["lfiw"].details["range_high"]


def test_doubly_robust_is_surer_than_importance_sampling():
    """Where the weights carry both, the critic takes away most of the noise."""
    quiet, near = replace(SYSTEM, spread=1e-3, noise=0.02), linear_policy([[0.0, -0.3]], [0.3], 0.45)
    found = from_logs(quiet.logs(BEHAVIOUR, 600, 5, seed=0), near, 5, resamples=50)
    truth, sampled, both = quiet.value(near, 5), found["per_decision"], found["doubly_robust"]
    assert sampled.value == pytest.approx(truth, abs=2.5 * sampled.std_error)
    assert both.value == pytest.approx(truth, abs=2.5 * both.std_error)
    assert both.std_error < 0.5 * sampled.std_error


def test_importance_sampling_is_refused_where_few_episodes_count(logs):
    found = from_logs(logs, TARGET, 20, resamples=20)["per_decision"]
    assert found.verdict == "refused"
    assert found.ess < 5
    assert found.reason == f"150 episodes are worth {found.ess:.1f} after weighting; 5 are needed"
    near = from_logs(logs, linear_policy([[0.0, -0.2]], [0.02], 0.5), 20, resamples=20)["per_decision"]
    assert near.known
    assert near.ess > 5


def test_what_the_logs_do_not_carry_is_said(logs):
    bare = Logs.of(logs.observations, logs.actions, logs.rewards, logs.next_observations, logs.episodes)
    found = from_logs(bare, TARGET, 20, resamples=20)
    for name in ("per_decision", "doubly_robust"):
        assert math.isnan(found[name].value)
        assert found[name].reason == "the logs hold no action densities"
    beyond = from_logs(logs, TARGET, 21, resamples=20)
    assert beyond["logged"].reason == "no two logged episodes have 21 steps"
    assert math.isfinite(beyond["fitted_q"].value)


def test_a_fitted_q_that_loses_resamples_has_no_spread(logs, monkeypatch):
    """That of the ones that survived would be too small; and one around nothing is none."""
    known = fitted_q(logs, TARGET, 20, generator=torch.Generator().manual_seed(0))
    assert known.lost == 0
    for change, note in (
        ({"lost": 0.06}, "6% of the resamples diverged"),
        ({"value": math.nan}, "the recursion diverged"),
    ):
        planted = replace(known, **change)
        monkeypatch.setattr(estimators, "fitted_q", lambda *a, planted=planted, **k: planted)
        found = from_logs(logs, TARGET, 20, resamples=20)["fitted_q"]
        assert math.isnan(found.std_error)
        assert note in (*found.notes, found.reason)[0]
    monkeypatch.setattr(estimators, "fitted_q", lambda *a, **k: replace(known, lost=0.2))
    tiny = {"settings": Settings(hidden=(4,), steps=5), "trajectories": 20, "members": 2, "classifiers": 1}
    said = evaluate(logs, TARGET, horizon=20, reward=SYSTEM.reward, resamples=20, **tiny).warnings
    assert any("diverged in 20% of the resamples" in text for text in said)
    monkeypatch.setattr(estimators, "fitted_q", lambda *a, **k: replace(known, lost=0.05))
    assert math.isfinite(from_logs(logs, TARGET, 20, resamples=20)["fitted_q"].std_error)


def test_a_reward_that_the_logs_did_not_pay_is_said(logs):
    assert reward_gap(logs, SYSTEM.reward) == pytest.approx((0, 0), abs=1e-6)
    shifted = reward_gap(logs, lambda s, a, after: SYSTEM.reward(s, a, after) + 2 * float(logs.rewards.std()))
    assert shifted == pytest.approx((2, 2), rel=1e-5)
    found = evaluate(logs, TARGET, horizon=25, reward=lambda s, a, after: -SYSTEM.reward(s, a, after), **FAST)
    assert any("is not what the logs paid" in text for text in found.warnings)
    assert any("No logged episode has 25 steps" in text for text in found.warnings)
    assert found.report["reward_gap"] > 1
    constant = replace(logs, rewards=torch.full_like(logs.rewards, 3.0))
    assert reward_gap(constant, lambda s, a, after: s.new_full(s.shape[:2], 3.0 + 1e-6))[0] < 0.01


class Loose:
    """A policy that names neither widths nor bounds."""

    def act(self, observations, *, generator):
        return torch.full((*observations.shape[:-1], 1), 7.0)

    def log_prob(self, observations, actions):
        return torch.zeros(observations.shape[:-1], dtype=torch.float64)


BOUND = 3.0


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (TARGET, r"must be bounded as the logs' actions are \(give it low= and high=\). Got one without bounds"),
        (replace(TARGET, low=[-BOUND], high=[4.0]), r"low= and high=\). Got \[-3, 4\] for \[-3, 3\] in dimension 0"),
        (replace(TARGET, low=[-2.9], high=[BOUND]), r"Got \[-2.9, 3\] for \[-3, 3\]"),
        (Loose(), r"'actions' of the policy must be within the space, here \[-3, 3\]. Got 7"),
    ],
)
def test_a_policy_has_the_bounds_of_the_logs(logs, policy, sentence):
    ends = {"action_low": torch.tensor([-BOUND]), "action_high": torch.tensor([BOUND])}
    bounded = Logs.of(
        logs.observations,
        logs.actions.clamp(-BOUND, BOUND),
        logs.rewards,
        logs.next_observations,
        logs.episodes,
        **ends,
    )
    with pytest.raises(InputError, match=sentence):
        evaluate(bounded, policy, on_progress=lambda what, share: pytest.fail("work began"))
    alike = replace(TARGET, low=[-BOUND - 1e-7], high=[BOUND])
    with pytest.raises(RuntimeError, match="began"):
        evaluate(bounded, alike, on_progress=_begun)


def _begun(what, share):
    raise RuntimeError("began")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"horizon": 0}, "'horizon' of policy.evaluate must be at least 1"),
        ({"discount": 0.0}, r"'discount' of policy.evaluate must be in \(0, 1\]"),
        ({"ess": 2.0}, "'ess' of policy.evaluate must be in"),
        ({"trajectories": 1}, "'trajectories' of policy.evaluate must be at least 10"),
        ({"members": 0}, "'members' of Dynamics must be at least 1"),
        ({"members": 1501}, "'logs' of policy.evaluate must be 3002 transitions or more for 1501 members. Got 3000"),
        (
            {"reward": REWARDS["HalfCheetah-v5"]},
            "'reward' of policy.evaluate must be one for observations 2 wide and actions 1 wide, .* for 17 and 6",
        ),
        ({"reward": lambda s, a, after: s}, r"'reward' of policy.evaluate must be one number a row, here \(1, 3000\)"),
        ({"reward": lambda s, a, after: s[..., 0] / 0}, "'reward' of policy.evaluate must be finite on the logs"),
        ({"policy": GaussianPolicy.initial(3, 1)}, "'policy' of policy.evaluate must be one for observations 2 wide"),
        (
            {"policy": GaussianPolicy.initial(2, 1, low=torch.tensor([-0.1]), high=torch.tensor([0.1]))},
            r"'actions' of the logs must be within the space, here \[-0.1, 0.1\]",
        ),
    ],
)
def test_what_is_refused_before_any_work(logs, wrong, sentence):
    with pytest.raises(InputError, match=sentence):
        evaluate(logs, **({"policy": TARGET} | wrong), on_progress=lambda what, share: pytest.fail("work began"))
