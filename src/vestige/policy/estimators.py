"""Estimates of the value: from simulated trajectories, from the logs without a model, and from weighted trajectories.

**From simulated trajectories.** x_e[k, i] is the return of the evaluated policy in member k from the first state of
logged episode i, x_b[k, i] that of the behaviour policy (or of the logged actions, replayed) with the same noise, g[i]
the logged return. With bars for means,

    model        mean x_e
    corrected    mean (x_e - x_b) + mean g            v(pi_e) - v(pi_b) + v_logged
    calibration  mean (x_b - g)                       the gap: what the model gets wrong where the truth is known

What the model gets wrong about both policies alike cancels in the second. Errors have two parts, members and episodes
crossed: s_k^2, the variance of the members' means, times `MEMBERS`, and the variance over episodes of what is averaged
over members, divided by their number. Their sum has the degrees of freedom of Welch and Satterthwaite, and the reach of
an interval is Student's quantile of those times its root. `mean (x_e - x_b)` may be over fewer starts than there are
logged episodes; the covariance of both means is taken along (`error_of`).

**A spread is no interval.** `HOLDS` names the estimates for which there is an interval at all; whether it is given
`evaluation.withdrawal` says, by what `python -m benchmarks policy` measured. All others have the verdict "spread": no
ends, and a `std_error` that says how far resampling moves the value. So has everything of a single member, which does
not know how far another would be.

**From logged episodes alone**: the mean return, importance sampling, and doubly robust estimates.

rho_t = prod over t' <= t of pi_e(a|s) / pi_b(a|s). All weighted, that is normalised over episodes at each step t, w_t:

    per decision    sum_t discount^t sum_i w_t^i r_t^i                                    (Precup et al. 2000)
    doubly robust   the same with  r_t - Q_t(s_t, a_t)  for r_t, plus  w_{t-1}^i V_t(s_t)  (Thomas and Brunskill 2016)

where w_{-1} = 1/n. The first is the second with Q = V = 0. An episode that has ended keeps its weight and earns
nothing. Below an effective sample size of `FEWEST_EFFECTIVE` the first is refused: it is then the return of one or two
episodes. Counts say how often each episode is drawn in each of many resamples; row 0 draws all once.

**Fitted-Q evaluation** with linear features and a finite horizon (Le, Voloshin and Yue 2019), from logs alone.

    Q_h(s, a) = E[r + discount V_{h-1}(s')],   V_h(s) = E_{a ~ pi} Q_h(s, a),   V_0 = 0,

each Q_h a least-squares fit on phi = [1, x, x_i x_j] of standardised x = (s, a) ([1, x, x_i^2] where rows are too few
for all products, or products too many). For linear dynamics with quadratic rewards that is exact. The regressions
share one Gram matrix, so that h -> h + 1 is a product with one matrix: theta_{h+1} = b + discount A theta_h.

The expectation over a is a mean over `ACTION_DRAWS` actions. A terminal s' is worth nothing. The spread is that of
resampled blocks of episodes, whose moments are summed once. Where the recursion diverges, beyond what the largest
logged reward could earn over the horizon, there is no value; `lost` is the share of resamples in which it does, which a
spread of the others would leave out.

**From weighted trajectories**, whose bias is corrected by weights (LFIW Eqs. 10, 11 and 6): diagnostics. A trajectory's
log weight is the sum of its transitions' log-ratios over the first H steps; H = 0 is the plain model, H = T all of Eq.
11. Weights are self-normalised (Eq. 6), for each classifier by itself, and the values averaged over classifiers, as in
the paper. Products of a hundred ratios leave one trajectory with all the weight; `tempered` flattens them (Eq. 7) by
the largest exponent that keeps a share of the trajectories effective, which is no part of the paper.

`shuffled` is the control: the same weights, handed out at random. It shows what weights that know nothing do. The
ranges are percentiles of a bootstrap over members, trajectories and classifiers, exponents as they were found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from vestige.core import Estimate, rng
from vestige.policy.dynamics import Trajectories
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy
from vestige.ratios import weights
from vestige.ratios.standardise import Standardiser, design


def _with_all(drawn: Tensor, n: int) -> Float64[Tensor, "b n"]:
    counts = torch.zeros(len(drawn), n, dtype=torch.float64)
    counts.scatter_add_(1, drawn, torch.ones(drawn.shape, dtype=torch.float64))
    return torch.cat([torch.ones(1, n, dtype=torch.float64), counts])


def episode_counts(n: int, draws: int, generator: torch.Generator) -> Float64[Tensor, "b n"]:
    """n of n with replacement, `draws` times."""
    return _with_all(torch.randint(n, (draws, n), generator=generator), n)


def trajectory_counts(n: int, members: int, draws: int, generator: torch.Generator) -> Float64[Tensor, "b n"]:
    """In two stages: members with replacement, then trajectories of each; those of a member stand together."""
    each = n // members
    member = torch.randint(members, (draws, members, 1), generator=generator)
    within = torch.randint(each, (draws, members, each), generator=generator)
    return _with_all((member * each + within).flatten(1), n)


def interval(values: Float64[Tensor, " b"], level: float = 0.95) -> tuple[float, float]:
    """Percentiles."""
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.quantile(values, ends).tolist()
    return low, high


@dataclass(frozen=True)
class Weighted:
    """Weighted values for each H of `hs`: the mean over classifiers, its interval, and what each classifier says."""

    hs: tuple[int, ...]
    values: Float64[Tensor, " k"]
    low: Float64[Tensor, " k"]
    high: Float64[Tensor, " k"]
    by_classifier: Float64[Tensor, "c k"]
    ess: Float64[Tensor, " k"]  # effective trajectories, mean over classifiers
    alpha: Float64[Tensor, " k"]  # exponents, mean over classifiers


def trajectory_log_weights(log_ratio: Float64[Tensor, "c n h"], first: int) -> Float64[Tensor, "c n"]:
    """log of the product over the first `first` steps (Eq. 10; Eq. 11 truncated)."""
    return log_ratio[:, :, :first].sum(2)


def self_normalised(
    log_weights: Float64[Tensor, "c n"], returns: Float64[Tensor, " n"], counts: Float64[Tensor, "b n"]
) -> Float64[Tensor, "b c"]:
    """Eq. 6 for each classifier and each resample, in which a trajectory counts as often as it was drawn."""
    log_counts = counts.log()
    return torch.stack([torch.softmax(log_w + log_counts, 1) @ returns for log_w in log_weights], 1)


def weighted_values(
    log_ratio: Float64[Tensor, "c n h"],
    returns: Float64[Tensor, " n"],
    hs: tuple[int, ...],
    counts: Float64[Tensor, "b n"],
    classifier_counts: Float64[Tensor, "b c"],
    *,
    min_ess: float | None = None,
) -> Weighted:
    """Values for each H, self-normalised; tempered to an ESS of `min_ess` of the trajectories where that is given.

    Row 0 of both counts is the sample itself.
    """
    mix = classifier_counts / classifier_counts.sum(1, keepdim=True)
    found: list[tuple[Tensor, ...]] = []
    for h in hs:
        log_w = trajectory_log_weights(log_ratio, h)
        alphas = torch.ones(len(log_w), dtype=torch.float64)
        if min_ess is not None:
            tempered = [weights.temper(row, min_ess) for row in log_w]
            log_w = torch.stack([t.log_weights for t in tempered])
            alphas = torch.tensor([t.alpha for t in tempered], dtype=torch.float64)
        each = self_normalised(log_w, returns, counts)
        mean = (mix * each).sum(1)
        low, high = interval(mean[1:])
        ess = torch.tensor([weights.ess(row) for row in log_w], dtype=torch.float64).mean()
        found.append((mean[0], torch.tensor(low), torch.tensor(high), each[0], ess, alphas.mean()))
    values, low_, high_, each_, ess_, alpha_ = (torch.stack(part).double() for part in zip(*found, strict=True))
    return Weighted(hs, values, low_, high_, each_.mT, ess_, alpha_)


def shuffled(
    log_weights: Float64[Tensor, "c n"], returns: Float64[Tensor, " n"], draws: int, *, generator: torch.Generator
) -> Float64[Tensor, " b"]:
    """Values under weights that were handed to the trajectories in random orders, averaged over classifiers."""
    shares = torch.softmax(log_weights, 1)
    order = torch.rand(draws, len(returns), generator=generator).argsort(1)
    return (returns[order] @ shares.mT).mean(1)


@dataclass(frozen=True)
class Episodes:
    """The first h steps of the e episodes that have them, side by side; zeros beyond an early end."""

    observations: Tensor  # (e, h, s)
    actions: Tensor  # (e, h, a)
    rewards: Float64[Tensor, "e h"]
    alive: Bool[Tensor, "e h"]
    log_ratio: Float64[Tensor, "e h"] | None  # log rho_t, summed up to and with step t

    @classmethod
    def of(cls, logs: Logs, horizon: int, policy: Policy | None = None) -> Episodes:
        """Of `logs`; with log rho of `policy` where the behaviour's log densities are logged."""
        rows, alive = logs.first(horizon)
        s, a = logs.observations[rows], logs.actions[rows]
        log_ratio = None
        if policy is not None and logs.log_probs is not None:
            step = policy.log_prob(s, a) - logs.log_probs[rows]
            log_ratio = (step * alive).cumsum(1)
        return cls(s, a, logs.rewards[rows] * alive, alive, log_ratio)

    def returns(self, discount: float = 1.0) -> Float64[Tensor, " e"]:
        """The logged return of each episode over the horizon."""
        return self.rewards @ discount ** torch.arange(self.rewards.shape[1], dtype=torch.float64)


def doubly_robust(
    log_ratio: Float64[Tensor, "e h"],
    rewards: Float64[Tensor, "e h"],
    counts: Float64[Tensor, "b e"],
    discount: float = 1.0,
    q: Float64[Tensor, "e h"] | None = None,
    v: Float64[Tensor, "e h"] | None = None,
) -> Float64[Tensor, " b"]:
    """The value under each of b weightings of the episodes: `counts` says how often an episode is drawn.

    Without `q` and `v` it is weighted per-decision importance sampling.
    """
    log_counts = counts.log()
    before = torch.softmax(log_counts, 1)  # rho_{-1} = 1
    value = torch.zeros(len(counts), dtype=torch.float64)
    for t in range(rewards.shape[1]):
        now = torch.softmax(log_counts + log_ratio[:, t], 1)
        gain = now @ (rewards[:, t] if q is None else rewards[:, t] - q[:, t])
        value += discount**t * (gain if v is None else gain + before @ v[:, t])
        before = now
    return value


ACTION_DRAWS = 16  # actions over which an expectation is a mean
BLOCKS = 20  # of episodes, which are resampled
FITTED_RESAMPLES = 100
FITTED_RIDGE = 1e-6  # of the mean of the Gram matrix's diagonal
ROWS_A_PRODUCT = 100  # rows that each product x_i x_j asks for
MOST_COLUMNS = 1000  # beyond so many the products are left out


@dataclass(frozen=True, eq=False)
class QuadraticFeatures:
    """phi(s, a), and its expectation over the actions of a policy."""

    standardise: Standardiser
    form: str
    policy: Policy

    def __call__(self, s: Tensor, a: Tensor) -> Float64[Tensor, "n f"]:
        """phi, row by row."""
        return design(self.standardise(torch.cat([s.double(), a.double()], 1)), self.form)

    def expected(self, s: Tensor, generator: torch.Generator) -> Float64[Tensor, "n f"]:
        """phi averaged over draws of the policy's action."""
        drawn = (self(s, self.policy.act(s, generator=generator)) for _ in range(ACTION_DRAWS))
        return reduce(torch.add, drawn) / ACTION_DRAWS


@dataclass(frozen=True, eq=False)
class FittedQ:
    """theta[h] for h = 0 ... horizon; `value` is NaN where the recursion diverged; `resampled` its bootstrap."""

    features: QuadraticFeatures
    theta: Float64[Tensor, "h_1 f"]
    value: float
    resampled: Float64[Tensor, " b"]  # those that did not diverge
    lost: float  # the share of resamples that did

    def q(self, s: Tensor, a: Tensor, left: Tensor) -> Float64[Tensor, " n"]:
        """Q(s, a) with `left` steps to go, row by row."""
        return (self.features(s, a) * self.theta[left]).sum(1)

    def v(self, s: Tensor, left: Tensor, *, generator: torch.Generator) -> Float64[Tensor, " n"]:
        """V(s) with `left` steps to go, row by row."""
        return (self.features.expected(s, generator) * self.theta[left]).sum(1)


def fitted_q(logs: Logs, policy: Policy, horizon: int, discount: float = 1.0, *, generator: torch.Generator) -> FittedQ:
    """Q of `policy` for every number of steps to go, and its value from the logs' first states."""
    x = torch.cat([logs.observations.double(), logs.actions.double()], 1)
    products = x.shape[1] * (x.shape[1] + 1) // 2
    full = products <= min(len(x) / ROWS_A_PRODUCT, MOST_COLUMNS)
    features = QuadraticFeatures(Standardiser.of(x), "full" if full else "diagonal", policy)
    episodes = len(logs.lengths)
    blocks = min(BLOCKS, episodes)
    block_of = torch.arange(episodes) * blocks // episodes
    sums = []
    for block in range(blocks):
        inside = block_of == block
        rows = inside[logs.episodes]
        phi = features(logs.observations[rows], logs.actions[rows])
        after = features.expected(logs.next_observations[rows], generator)
        if logs.terminated is not None:
            after[logs.terminated[rows]] = 0.0
        first = features.expected(logs.initial[inside], generator).sum(0)
        sums.append((phi.mT @ phi, phi.mT @ after, phi.mT @ logs.rewards[rows], first, inside.sum().double()))
    moments = [torch.stack(part) for part in zip(*sums, strict=True)]
    # As much as the largest logged reward at every step, tenfold for noise.
    most = 10 * float(logs.rewards.abs().max()) * sum(discount**t for t in range(horizon))
    counts = episode_counts(blocks, FITTED_RESAMPLES, generator)
    theta, value = _solve(moments, counts[0], horizon, discount)
    drawn = torch.stack([_solve(moments, row, horizon, discount)[1] for row in counts[1:]])
    found = float(value) if float(value.abs()) <= most else math.nan
    kept = drawn[drawn.abs() <= most]
    return FittedQ(features, theta, found, kept, 1 - len(kept) / FITTED_RESAMPLES)


def _solve(
    moments: list[Tensor], counts: Float64[Tensor, " j"], horizon: int, discount: float
) -> tuple[Float[Tensor, "h_1 f"], Float64[Tensor, ""]]:
    """theta_h for all h and the value, with each block counted as often as `counts` says."""
    gram, carried, reward, first, episodes = (torch.tensordot(counts, part, dims=1) for part in moments)
    eye = torch.eye(len(gram), dtype=torch.float64)
    factor = torch.linalg.cholesky(gram + FITTED_RIDGE * gram.diagonal().mean() * eye)
    solved = torch.cholesky_solve(torch.cat([carried, reward[:, None]], 1), factor)
    a, b = solved[:, :-1], solved[:, -1]
    theta = [torch.zeros_like(b)]
    for _ in range(horizon):
        theta.append(b + discount * (a @ theta[-1]))
    return torch.stack(theta), first @ theta[-1] / episodes


HOLDS = ("corrected",)  # estimates with an interval, see the module
MEMBERS = 1.0  # the members' variance counts as often: they share the logs, and a mean over them is no surer than one
LEVEL = 0.95  # of intervals
FEWEST_EFFECTIVE = 5.0  # episodes that importance sampling must be worth
MOST_LOST = 0.05  # share of resamples in which fitted Q may diverge before its spread is withheld
DIVERGED = "the recursion diverged: the features do not fit this policy"


@dataclass(frozen=True)
class Simulated:
    """Returns in the model beside logged ones; columns of `evaluated` begin at the same states as those of `behaviour`.

    `starts` says which logged episode each column of `behaviour` begins like; `evaluated` may have further columns
    after those, of episodes that are too short to be compared.
    """

    evaluated: Float64[Tensor, "k n"]
    behaviour: Float64[Tensor, "k w"]
    starts: Int64[Tensor, " w"]
    logged: Float64[Tensor, " e"]


def reach_of(parts: Sequence[tuple[float, int]], level: float = LEVEL) -> float:
    """Half the width of an interval around a sum of independent errors, each (variance, degrees of freedom).

    Student's quantile times the root of the sum; degrees of freedom after Welch and Satterthwaite.
    """
    from scipy.special import stdtrit

    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 0.0
    freedom = total**2 / sum(variance**2 / df for variance, df in parts if variance > 0)
    return float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(total)


def error_of(
    x: Float64[Tensor, "k n"], more: Float64[Tensor, " e"] | None = None, at: Int64[Tensor, " n"] | None = None
) -> list[tuple[float, int]]:
    """The parts of the error of mean x + mean more: (variance, degrees of freedom) over members and over episodes.

    Column j of `x` begins like episode at[j] of `more`.
    """
    parts = []
    if len(x) > 1:
        parts.append((MEMBERS * float(x.mean(1).var()), len(x) - 1))
    each = x.mean(0)
    n = len(each)
    variance = float(each.var()) / n
    if more is not None and at is not None:
        e = len(more)
        off = more - more.mean()
        shared = float(((each - each.mean()) * off[at]).sum()) / (n - 1)
        variance = max(variance + (float(more.var()) + 2 * shared) / e, 0.0)
    parts.append((variance, n - 1))
    return parts


def _valued(name: str, value: float, parts: list[tuple[float, int]], note: str) -> Estimate:
    """With an interval if it is one of those that hold, else with a spread."""
    error = math.sqrt(sum(variance for variance, _ in parts))
    if name not in HOLDS or len(parts) < 2:
        return Estimate.spread(value, error, notes=(note,))
    reach = reach_of(parts)
    return Estimate(value, value - reach, value + reach, LEVEL, error, notes=(note,))


def from_simulated(found: Simulated) -> tuple[dict[str, Estimate], Estimate]:
    """`model` and `corrected`, and the calibration gap: the behaviour policy's simulated return less its logged one."""
    members, n = found.evaluated.shape
    note = f"{members} members, {n} first states"
    estimates = {"model": _valued("model", float(found.evaluated.mean()), error_of(found.evaluated), note)}
    w, e = found.behaviour.shape[1], len(found.logged)
    if e < 2 or w < 2:
        missing = Estimate.refused("no two logged episodes are as long as the horizon")
        return estimates | {"corrected": missing}, missing
    change = found.evaluated[:, :w] - found.behaviour
    value = float(change.mean() + found.logged.mean())
    told = f"change to the behaviour policy {float(change.mean()):+.4g} in the model"
    estimates["corrected"] = _valued("corrected", value, error_of(change, found.logged, found.starts), told)
    parts = error_of(found.behaviour, -found.logged, found.starts)
    gap, reach = float(found.behaviour.mean() - found.logged.mean()), reach_of(parts)
    error = math.sqrt(sum(variance for variance, _ in parts))
    return estimates, Estimate(gap, gap - reach, gap + reach, LEVEL, error, n=e)


def _resampled(
    values: Float64[Tensor, " b"], said: str, ess: float | None = None, pareto_k: float | None = None
) -> Estimate:
    """The first value with the spread of the others, its resamples; what it rests on in words and numbers."""
    details = {} if pareto_k is None else {"pareto_k": pareto_k}
    return Estimate.spread(float(values[0]), float(values[1:].std()), ess=ess, notes=(said,), details=details)


def from_weights(
    simulated: Trajectories,
    log_ratio: Float64[Tensor, "c n h"],
    hs: tuple[int, ...],
    *,
    discount: float = 1.0,
    members: int,
    ess: float = 0.1,
    resamples: int = 500,
    seed: int = 0,
    cut: Float64[Tensor, "c n h"] | None = None,
) -> tuple[dict[str, Estimate], dict[str, Weighted], Float64[Tensor, " b"]]:
    """The unweighted value, the weighted ones with their curves over H, and the control, permutation by permutation.

    Low and high ends are ranges of resamples, no promise.

    `cut` are the log-ratios that are tempered, where those are not `log_ratio` (see `TransitionRatio.within`).
    """
    cut = log_ratio if cut is None else cut
    returns = simulated.returns(discount)
    counts = trajectory_counts(len(returns), members, resamples, rng.fork(seed, "trajectories"))
    mix = episode_counts(len(log_ratio), resamples, rng.fork(seed, "classifiers"))
    curves = {
        "lfiw": weighted_values(log_ratio, returns, hs, counts, mix),
        "lfiw_tempered": weighted_values(cut, returns, hs, counts, mix, min_ess=ess),
    }
    plain = counts @ returns / counts.sum(1)
    found = {"unweighted": _ranged(plain, f"{len(returns)} simulated trajectories")}
    log_w = trajectory_log_weights(log_ratio, hs[-1])
    tempered = torch.stack([weights.temper(row, ess).log_weights for row in trajectory_log_weights(cut, hs[-1])])
    tails = {"lfiw": _tail(log_w), "lfiw_tempered": _tail(tempered)}
    notes = {"lfiw": f"all {hs[-1]} steps weighted", "lfiw_tempered": f"weights flattened to an ESS of {ess:.0%}"}
    for name, c in curves.items():
        value, low, high, size, alpha = (float(x[-1]) for x in (c.values, c.low, c.high, c.ess, c.alpha))
        details = {"alpha": alpha} if tails[name] is None else {"pareto_k": tails[name], "alpha": alpha}
        error = (high - low) / (2 * RANGE)
        found[name] = Estimate.spread(value, error, ess=size, notes=(notes[name],), details=details | _ends(low, high))
    control = shuffled(tempered, returns, resamples, generator=rng.fork(seed, "shuffled"))
    permuted = "the same weights, permuted at random"
    ends = _ends(*interval(control))
    found["shuffled"] = Estimate.spread(float(control.mean()), float(control.std()), notes=(permuted,), details=ends)
    return found, curves, control


RANGE = 1.96  # deviations to either end of 95 % of a normal law


def _ends(low: float, high: float) -> dict[str, float]:
    return {"range_low": low, "range_high": high}


def _ranged(values: Float64[Tensor, " b"], said: str) -> Estimate:
    """The first value with the range of its resamples in the details."""
    found = _resampled(values, said)
    return found.but(details=_ends(*interval(values[1:])))


def _tail(log_w: Float64[Tensor, "c n"]) -> float | None:
    """Pareto k, the mean over classifiers whose weights have a tail."""
    tails = [k for row in log_w if (k := weights.tail_index(row)) is not None]
    return sum(tails) / len(tails) if tails else None


def from_logs(
    logs: Logs, policy: Policy, horizon: int, *, discount: float = 1.0, resamples: int = 500, seed: int = 0
) -> dict[str, Estimate]:
    """What the logs say without a model of the dynamics."""
    known = fitted_q(logs, policy, horizon, discount, generator=rng.fork(seed, "fitted q"))
    names = ("logged", "fitted_q", "doubly_robust", "per_decision")
    found = dict.fromkeys(names, Estimate.refused(f"no two logged episodes have {horizon} steps"))
    found["fitted_q"] = _fitted(known)
    episodes = Episodes.of(logs, horizon, policy)
    n = len(episodes.rewards)
    if n < 2:
        return found
    returns = episodes.returns(discount)
    value, variance = float(returns.mean()), float(returns.var()) / n
    reach, note = reach_of([(variance, n - 1)]), f"of the policy that ran, {n} episodes"
    found["logged"] = Estimate(value, value - reach, value + reach, LEVEL, math.sqrt(variance), n=n, notes=(note,))
    if episodes.log_ratio is None:
        missing = Estimate.refused("the logs hold no action densities")
        return found | {"per_decision": missing, "doubly_robust": missing}
    counts = episode_counts(n, resamples, rng.fork(seed, "episodes"))
    last = episodes.log_ratio[:, -1]
    size, k = weights.ess(last), weights.tail_index(last)
    if size < FEWEST_EFFECTIVE:
        why = f"{n} episodes are worth {size:.1f} after weighting; {FEWEST_EFFECTIVE:g} are needed"
        found["per_decision"] = Estimate.refused(why, ess=size)
    else:
        values = doubly_robust(episodes.log_ratio, episodes.rewards, counts, discount)
        found["per_decision"] = _resampled(values, f"{n} logged episodes", size, k)
    if not math.isfinite(known.value):
        return found | {"doubly_robust": Estimate.refused(DIVERGED)}
    left = (horizon - torch.arange(horizon)).expand(n, -1).flatten()
    s, a = episodes.observations.flatten(0, 1), episodes.actions.flatten(0, 1)
    q = known.q(s, a, left).reshape(n, horizon) * episodes.alive
    v = known.v(s, left, generator=rng.fork(seed, "doubly robust")).reshape(n, horizon) * episodes.alive
    values = doubly_robust(episodes.log_ratio, episodes.rewards, counts, discount, q, v)
    return found | {"doubly_robust": _resampled(values, "fitted Q corrected by per-decision weights", size, k)}


def _fitted(known: FittedQ) -> Estimate:
    """Fitted Q's value; without a spread where more than a few of its resamples diverged."""
    if not math.isfinite(known.value):
        return Estimate.refused(DIVERGED, details={"lost": known.lost})
    note, error = f"features: {known.features.form} quadratic", math.nan
    if known.lost > MOST_LOST:
        note += f"; {known.lost:.0%} of the resamples diverged"
    else:
        error = float(known.resampled.std())
    return Estimate.spread(known.value, error, notes=(note,), details={"lost": known.lost})
