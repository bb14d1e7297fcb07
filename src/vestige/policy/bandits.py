"""Contextual bandits: what is a policy worth, from logs of another with discrete actions and logged propensities?

A row is a context x, the action a that was taken, its reward r, and the probability mu(a | x) with which it was taken:
the propensity. The policy to evaluate is given by its probability pi(a | x) of every action in every row. With n rows,
w = pi(a | x) / mu(a | x) of the logged action, and q(x, a) a model of the reward,

    ips      mean of w r                                               Horvitz and Thompson 1952
    snips    sum of w r / sum of w                                     Swaminathan and Joachims 2015, section 4
    dr       mean of sum_b pi(b | x) q(x, b) + w (r - q(x, a))         Dudik, Langford and Li 2011, Eq. 2
    logged   mean of r: what the policy that ran earned

`ips` and `dr` are unbiased whatever q is; `snips` has a bias of order 1 / n and varies less. q is cross-fitted: the
model that speaks of a row has not learnt from it. It is a ridge regression on the context, the action and their
products, its penalty by generalised cross-validation; any regressor of scikit-learn's manner can take its place.

**Intervals.** Of the influence terms d_i of an estimate the largest counts twice, as if the worst row had come once
more. The standard error is theirs; quantiles are Student's with as many degrees of freedom as rows carry the variance,
(sum d^2)^2 / sum d^4, the number of equal terms that would vary as much; ends are moved for skewness by Hall's (1992)
monotone cubic transformation. For `snips` d_i = w_i (r_i - v) / mean w, divided by one less its share of the weights
(leave-one-out). They are asymptotic; how often they hold is measured by `python -m benchmarks bandits`. Seven forms of
intervals and five limits of the effective sample size were looked at on six families of problems (softmax and Dirichlet
logging; lognormal, Gaussian and rare rewards; a greedy policy), and this one was chosen; the families that are reported
are others. Limits on how many rows carry the variance made coverage worse: they prefer samples in which the tail did
not show.

**Verdicts.** "ok" needs weights that are worth `LEAST_ESS` rows and terms that differ. What the logs do not support is
not identified, and two things tell: an action that the policy takes and no row has; and a mean weight below 1 by more
than `MOST_ERRORS` standard errors (E w = 1 where mu > 0 wherever pi > 0, else it is 1 less the unsupported mass). A
mean weight above 1 by as much says that propensities are wrong, and everything is refused. Otherwise, with `bounds`
(L, H) of the reward, the value is bounded though it is not identified,

    L + E w (r - L)  <=  v  <=  H - E w (H - r),

since what unsupported actions earn lies between L and H. The verdict is then "at least", and `low` and `high` hold
together at the level that was asked for, without asymptotics: each is an empirical Bernstein bound (Maurer and Pontil
2009, Theorem 4) of the mean of min(w, tau) (r - L), which lies in [0, tau (H - L)] and whose expectation is at most
E w (r - L); tau is the best of `TAUS`, among which the error is shared. The same bounds stand where weights are too
heavy for "ok". Without `bounds` such estimates are refused.

Deviation: Dudik et al. learn q on data of its own; here it is cross-fitted on the logs.

References
----------
Horvitz and Thompson, "A generalization of sampling without replacement from a finite universe", JASA 1952. Hall, "On
the removal of skewness by transformation", JRSS B 1992. Maurer and Pontil, "Empirical Bernstein bounds and
sample-variance penalization", COLT 2009. Dudik, Langford and Li, "Doubly robust policy evaluation and learning", ICML
2011. Swaminathan and Joachims, "The self-normalized estimator for counterfactual learning", NeurIPS 2015.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from vestige.core import Estimate, checks, rng
from vestige.core.checks import ArrayLike
from vestige.core.plain import plain as as_plain
from vestige.data.readers.address import Address, locate, refuse_file
from vestige.data.readers.columns import floats, kind_of, plain
from vestige.data.readers.tables import read_table
from vestige.ratios.standardise import Standardiser

OWNER = "policy.evaluate_bandit"
LEAST_PROPENSITY = 1e-12
LEAST_ESS = 10.0  # rows that the weights must be worth
MOST_ERRORS = 3.5  # standard errors by which the mean weight may differ from 1
ROUNDING = 1e-3  # by which it may differ besides, and the probabilities of a row from 1 in sum: they are divided by it
TAUS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # limits of the weights, of which a bound takes the best
EQUAL = 1e-12  # share of a value by which terms may differ and still be the same: rounding
PENALTIES = tuple(10.0**i for i in range(-4, 5))  # of the ridge, over the mean of the Gram matrix's diagonal
CONTEXT, POLICY = "context_", "policy_"
ENDINGS = (".csv", ".parquet", ".arrow", ".feather")


@runtime_checkable
class Regressor(Protocol):
    """A model of the reward in scikit-learn's manner."""

    def fit(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> object:
        """Learn y from the rows of x."""
        ...

    def predict(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """y of each row."""
        ...


@dataclass(frozen=True, eq=False)
class BanditLogs:
    """Rows of a bandit's logs, checked once. Built by `of`, or with a policy's probabilities by `read`.

    Example
    -------
    >>> logs = BanditLogs.of([0, 1, 1, 0], [1.0, 0.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5], actions_known=2)
    >>> len(logs), logs.names
    (4, ('0', '1'))
    """

    actions: Int64[Tensor, " n"]  # a place in `names`
    rewards: Float64[Tensor, " n"]
    propensities: Float64[Tensor, " n"]
    names: tuple[str, ...]
    contexts: Float64[Tensor, "n d"] | None = None

    @classmethod
    def of(
        cls,
        actions: ArrayLike,
        rewards: ArrayLike,
        propensities: ArrayLike,
        *,
        contexts: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        actions_known: int | None = None,
        owner: str = "BanditLogs",
    ) -> BanditLogs:
        """Checked logs.

        Parameters
        ----------
        actions
            (n,) whole numbers from 0 on; with `names`, names of actions.
        rewards, propensities
            (n,) numbers; propensities are the probabilities with which the logged actions were taken, above 0.
        contexts
            (n, d) numbers that the model of the reward may see.
        names
            Of all actions, also of those that no row has.
        actions_known
            How many actions there are, where they have no names; the largest in the logs and one by default.
        """
        r = checks.vector(rewards, "rewards", owner, min_rows=2)
        if float(r.abs().max()) > checks.LARGEST:
            checks.refuse("rewards", owner, f"no larger than {checks.LARGEST:.2g}", f"{float(r.abs().max()):.4g}")
        p = checks.vector(propensities, "propensities", owner, length=len(r))
        off = ((p < LEAST_PROPENSITY) | (p > 1 + ROUNDING)).nonzero()
        if len(off):
            must = f"from {LEAST_PROPENSITY:g} to 1: the probability with which the logged action was taken"
            checks.refuse("propensities", owner, must, f"{float(p[off[0]]):.4g} in row {int(off[0])} (from 0)")
        a, known = _numbered(actions, names, actions_known, len(r), owner)
        x = None if contexts is None else checks.samples(contexts, "contexts", owner)
        if x is not None and len(x) != len(r):
            checks.refuse("contexts", owner, f"as many rows as 'rewards' ({len(r)})", len(x))
        return cls(a, r, p, known, x)

    @classmethod
    def read(cls, path: str | Path) -> tuple[BanditLogs, Float64[Tensor, "n k"]]:
        """The logs in a .csv, .parquet or Arrow file, and the probabilities of the policy to evaluate.

        Columns: `action` (a name or a whole number), `reward`, `propensity`, `policy_A` for every action A, and
        `context_...` for what the model of the reward may see. Others are left alone.
        """
        path = Path(path)
        if path.is_dir() or path.suffix.lower() not in ENDINGS:
            told = "a folder" if path.is_dir() else f"the ending '{path.suffix}'"
            refuse_file(path, f"logs that end in {', '.join(ENDINGS)}", told)
        at = locate(path)
        table, _ = read_table(at, with_index=True)
        columns, owner = list(dict.fromkeys(table.column_names)), at.path.name
        for name in ("action", "reward", "propensity"):
            if name not in columns:
                checks.refuse(name, owner, "a column of the table", f"only {checks.listed(columns, 200)}")
        names = [name.removeprefix(POLICY) for name in columns if name.startswith(POLICY)]
        if not names:
            must = f"given: a column {POLICY}ACTION for every action, with its probability under the policy to evaluate"
            checks.refuse(f"{POLICY}...", owner, must, "none")
        contexts = [name for name in columns if name.startswith(CONTEXT)]
        seen = np.stack([_numbers(table, name, at) for name in contexts], 1) if contexts else None
        rewards, propensities = _numbers(table, "reward", at), _numbers(table, "propensity", at)
        logs = cls.of(_names(table, at), rewards, propensities, contexts=seen, names=names, owner=owner)
        policy = np.stack([_numbers(table, f"{POLICY}{name}", at) for name in names], 1)
        return logs, probabilities(policy, logs, owner)

    def __len__(self) -> int:
        return len(self.rewards)


def probabilities(policy: ArrayLike, logs: BanditLogs, owner: str = OWNER) -> Float64[Tensor, "n k"]:
    """A policy's probability of every action in every row of `logs`, checked; one row of k stands for all."""
    given, shape = checks.as_tensor(policy, "policy", owner), (len(logs), len(logs.names))
    if given.shape == shape[1:]:
        given = given.expand(shape)
    if given.shape != shape:
        must = f"a probability of each of {shape[1]} actions in each of {shape[0]} rows"
        checks.refuse("policy", owner, must, f"shape {tuple(given.shape)}")
    pi = checks.matrix(given, "policy", owner)
    off = ((pi < 0) | (pi > 1 + ROUNDING)).nonzero()
    if len(off):
        row, at = (int(i) for i in off[0])
        told = f"{float(pi[row, at]):.4g} of action '{logs.names[at]}' in row {row} (from 0)"
        checks.refuse("policy", owner, "probabilities between 0 and 1", told)
    sums = pi.sum(1)
    off = ((sums - 1).abs() > ROUNDING).nonzero()
    if len(off):
        told = f"{float(sums[off[0]]):.4g} in row {int(off[0])} (from 0)"
        checks.refuse("policy", owner, "probabilities that sum to 1 in every row", told)
    return pi / sums[:, None]


@dataclass(frozen=True, eq=False)
class BanditEvaluation:
    """What was found: `estimates` are "dr", "snips", "ips" and "logged"."""

    estimates: dict[str, Estimate]
    mean_weight: Estimate  # 1 where propensities are right and the logs have all that the policy does
    ess: float  # rows that the weights are worth
    largest_share: float  # of all weight, in one row
    warnings: tuple[str, ...]
    report: dict[str, Any] = field(default_factory=dict)  # rows by action, and what the policy does that no row has

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON; None where a number is not finite."""
        return as_plain(dict(vars(self)))


def evaluate_bandit(
    logs: BanditLogs,
    policy: ArrayLike,
    *,
    bounds: tuple[float, float] | None = None,
    level: float = 0.95,
    folds: int = 5,
    reward_model: Regressor | None = None,
    seed: int = 0,
) -> BanditEvaluation:
    """The mean reward of `policy` on the contexts of the logs.

    Parameters
    ----------
    logs
        What was logged.
    policy
        (n, k) probabilities of every action in every row of the logs, or (k,) if they are the same in all.
    bounds
        The least and the largest reward that there can be, where that is known.
    level
        Of the intervals.
    folds
        Of the cross-fit of the reward's model.
    reward_model
        A regressor with `fit` and `predict`, copied for each fold; it sees the contexts and an indicator of each
        action. A ridge regression with products of both by default.
    seed
        Of the folds.

    Example
    -------
    >>> g = torch.Generator().manual_seed(0)
    >>> taken = torch.randint(2, (400,), generator=g)
    >>> reward = (torch.rand(400, generator=g) < 0.2 + 0.6 * taken).double()
    >>> logs = BanditLogs.of(taken, reward, torch.full((400,), 0.5))
    >>> found = evaluate_bandit(logs, [0.1, 0.9], bounds=(0, 1))  # worth 0.74
    >>> found.estimates["dr"].low < 0.74 < found.estimates["dr"].high
    True
    """
    checks.number(level, "level", OWNER, low=0, high=1, open_low=True, open_high=True)
    checks.whole(folds, "folds", OWNER, low=2)
    pi, ends = probabilities(policy, logs), _bounds(bounds, logs)
    n, r = len(logs), logs.rewards
    p = pi.gather(1, logs.actions[:, None]).squeeze(1)
    w = p / logs.propensities
    if not bool((w > 0).any()):
        checks.refuse("policy", OWNER, "one that would take at least one of the logged actions", "one that takes none")
    q = rewards_model(logs, min(folds, n), reward_model, rng.fork(seed, "folds"))
    mean, ess = float(w.mean()), float(w.sum() ** 2 / w.square().sum())
    terms = influence(w, r, q, pi, logs.actions)
    counts = torch.bincount(logs.actions, minlength=len(logs.names)).tolist()
    usual = pi.mean(0).tolist()
    never = {name: share for name, count, share in zip(logs.names, counts, usual, strict=True) if not count and share}
    weight = _interval(mean, w - mean, level).but(name="mean weight", n=n)
    error = float(w.std()) / math.sqrt(n)
    slack = MOST_ERRORS * error + ROUNDING
    wrong = f"the weights average {mean:.3g} (error {error:.2g}), not 1"
    refusal, doubt = "", ""
    if mean > 1 + slack:
        refusal = f"{wrong}: the propensities are not those with which the logged actions were taken"
    elif never:
        shown = checks.listed([f"'{name}'" for name in never], 80)
        doubt = f"{sum(never.values()):.1%} of the policy's choices are actions that the logs never took ({shown})"
    elif mean < 1 - slack:
        doubt = f"{wrong}: part of what the policy does is hardly or not in the logs, or propensities are wrong"
    elif ess < LEAST_ESS:
        doubt = f"the weights are worth {ess:.1f} of {n} rows"
    estimates = {}
    for name, (value, d) in terms.items():
        own = torch.ones_like(w) if name == "logged" else w
        size = float(own.sum() ** 2 / own.square().sum())
        known = _interval(value, d, level).but(name=name, n=n, ess=size)
        why = "the rows that count all say the same" if known.std_error == 0 else ""
        if name != "logged":
            if refusal:
                estimates[name] = known.withdrawn(refusal)
                continue
            why = doubt or why
        estimates[name] = _judged(known, why, ends, bernstein(own, r, ends, level) if ends and why else None)
    return BanditEvaluation(
        estimates,
        weight,
        ess,
        float(w.max() / w.sum()),
        tuple(f"{one[0].upper()}{one[1:]}." for one in (refusal, doubt) if one),
        {"rows": n, "actions": dict(zip(logs.names, counts, strict=True)), "never_logged": never}
        | {"bounds": ends, "level": level},
    )


def influence(
    w: Float64[Tensor, " n"],
    r: Float64[Tensor, " n"],
    q: Float64[Tensor, "n k"],
    pi: Float64[Tensor, "n k"],
    actions: Int64[Tensor, " n"],
) -> dict[str, tuple[float, Float64[Tensor, " n"]]]:
    """Each estimate with its influence terms: by how much a row moves it, n-fold."""
    own = q.gather(1, actions[:, None]).squeeze(1)
    robust = (pi * q).sum(1) + w * (r - own)
    weighted = w * r
    ratio = float(weighted.sum() / w.sum())
    alone = (1 - w / w.sum()).clamp(min=torch.finfo(torch.float64).eps)  # what is left without the row
    found = {"dr": robust, "snips": w * (r - ratio) / w.mean() / alone, "ips": weighted, "logged": r}
    return {
        name: (ratio, terms) if name == "snips" else (float(terms.mean()), terms - terms.mean())
        for name, terms in found.items()
    }


def _interval(value: float, d: Float64[Tensor, " n"], level: float) -> Estimate:
    """`value` with the interval of the module's docstring; no interval where no term differs from the others."""
    from scipy.special import stdtrit

    n, worst = len(d), float(d.abs().max())
    if worst <= EQUAL * abs(value):
        return Estimate(value, value, value, level, 0.0)
    unit = d / worst  # no power of it overflows; the worst row, of size 1, counts twice
    squares = float(unit.square().sum()) + 1
    error = worst * math.sqrt(squares / n / (n - 1))
    carriers = squares**2 / (float(unit.pow(4).sum()) + 1)
    skewness = float(unit.pow(3).mean()) / (squares / n) ** 1.5 / math.sqrt(n)
    y = float(stdtrit(max(carriers, 1.0), (1 + level) / 2))

    def untransformed(t: float) -> float:  # Hall 1992, the inverse of his g
        if abs(skewness) < 1e-9:
            return t
        return 3 / skewness * (float(np.cbrt(1 + skewness * (t - skewness / 6))) - 1)

    low, high = value - untransformed(y) * error, value - untransformed(-y) * error
    return Estimate(value, low, high, level, error, details={"carriers": carriers})


def _judged(
    known: Estimate, doubt: str, ends: tuple[float, float] | None, reach: tuple[float, float] | None
) -> Estimate:
    """`known` as it is, within the bounds of the reward; or, with a doubt, what can be promised in spite of it."""
    if not doubt:
        return known if ends is None else known.but(low=max(known.low, ends[0]), high=min(known.high, ends[1]))
    if reach is None:
        return known.withdrawn(f"{doubt}; with bounds of the reward the value could be bounded")
    low, high = reach
    return known.but(low=low, high=high, std_error=math.nan, verdict="at least", reason=f"{doubt}; at most {high:.4g}")


def bernstein(
    w: Float64[Tensor, " n"], r: Float64[Tensor, " n"], ends: tuple[float, float], level: float
) -> tuple[float, float]:
    """Ends between which the value lies with probability `level`, whatever the logs support."""
    bottom, top = ends
    share = (1 - level) / (2 * len(TAUS))

    def least(gain: Tensor) -> float:
        """A lower bound of E w gain, of gains in [0, top - bottom]."""
        n, found = len(gain), 0.0
        for tau in TAUS:
            terms, far = w.clamp(max=tau) * gain, math.log(2 / share)
            reach = math.sqrt(2 * float(terms.var()) * far / n) + 7 * tau * (top - bottom) * far / (3 * (n - 1))
            found = max(found, float(terms.mean()) - reach)
        return found

    return bottom + least(r - bottom), top - least(top - r)


def rewards_model(
    logs: BanditLogs, folds: int, model: Regressor | None, generator: torch.Generator
) -> Float64[Tensor, "n k"]:
    """q(x, a) of every action in every row, by a model that has not learnt from the row."""
    n, k = len(logs), len(logs.names)
    x = torch.zeros(n, 0, dtype=torch.float64) if logs.contexts is None else logs.contexts.double()
    x = Standardiser.of(x)(x) if x.shape[1] else x
    fold = torch.randperm(n, generator=generator) % folds
    q = torch.empty(n, k, dtype=torch.float64)
    for i in range(folds):
        learnt, asked = fold != i, fold == i
        if model is None:
            q[asked] = _ridge(x[learnt], logs.actions[learnt], logs.rewards[learnt], k, x[asked])
        else:
            q[asked] = _regressed(copy.deepcopy(model), x, logs, learnt, asked)
    return q


def _ridge(x: Tensor, actions: Tensor, rewards: Tensor, k: int, asked: Tensor) -> Float64[Tensor, "m k"]:
    """Predictions of a ridge regression on (1, x), and on both within each action, less the mean reward."""
    ones = torch.cat([torch.ones(len(x), 1, dtype=torch.float64), x], 1)
    within = (torch.nn.functional.one_hot(actions, k).double()[:, :, None] * ones[:, None]).flatten(1)
    design, centre = torch.cat([ones, within], 1), rewards.mean()
    values, vectors = torch.linalg.eigh(design.mT @ design)
    values = values.clamp(min=0.0)
    y = rewards - centre
    carried = vectors.mT @ (design.mT @ y)
    n, best = len(y), (math.inf, torch.zeros_like(carried))
    for penalty in PENALTIES:
        shrunk = 1 / (values + penalty * values.mean())
        rest = y.square().sum() - (carried.square() * shrunk * (2 - values * shrunk)).sum()
        left = n - float((values * shrunk).sum())
        score = n * float(rest) / left**2 if left > 1 else math.inf  # generalised cross-validation
        if score < best[0]:
            best = score, shrunk * carried
    coefficients = (vectors @ best[1]).reshape(k + 1, -1)
    seen = torch.cat([torch.ones(len(asked), 1, dtype=torch.float64), asked], 1)
    return centre + seen @ (coefficients[:1] + coefficients[1:]).mT


def _regressed(model: Regressor, x: Tensor, logs: BanditLogs, learnt: Tensor, asked: Tensor) -> Float64[Tensor, "m k"]:
    """Predictions of a user's model."""
    k = len(logs.names)
    shown = torch.cat([x, torch.nn.functional.one_hot(logs.actions, k).double()], 1)
    model.fit(shown[learnt].numpy(), logs.rewards[learnt].numpy())
    found, m = [], int(asked.sum())
    for action in range(k):
        taken = torch.zeros(m, k, dtype=torch.float64)
        taken[:, action] = 1
        said = model.predict(torch.cat([x[asked], taken], 1).numpy())
        found.append(checks.vector(said, "reward_model", OWNER, length=m))
    return torch.stack(found, 1)


def _bounds(bounds: tuple[float, float] | None, logs: BanditLogs) -> tuple[float, float] | None:
    """Both bounds, below each other and around every logged reward."""
    if bounds is None:
        return None
    if not isinstance(bounds, Sequence) or len(bounds) != 2:
        checks.refuse("bounds", OWNER, "the least and the largest reward", bounds)
    low, high = (checks.number(end, "bounds", OWNER, low=-math.inf, high=math.inf) for end in bounds)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        checks.refuse("bounds", OWNER, "finite, the first below the second", f"{low:g} and {high:g}")
    off = ((logs.rewards < low) | (logs.rewards > high)).nonzero()
    if len(off):
        told = f"{float(logs.rewards[off[0]]):.4g} in row {int(off[0])} (from 0)"
        checks.refuse("bounds", OWNER, f"around every logged reward, here {low:g} to {high:g}", told)
    return low, high


def _numbered(
    actions: ArrayLike, names: Sequence[str] | None, known: int | None, n: int, owner: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Actions as places among their names, and the names."""
    if names is None:
        a = checks.labels(actions, "actions", owner, length=n)
        k = int(a.max()) + 1 if known is None else checks.whole(known, "actions_known", owner, low=1)
        if int(a.max()) >= k:
            checks.refuse("actions", owner, f"whole numbers below {k}, the number of actions", int(a.max()))
        return a, tuple(map(str, range(k)))
    own = tuple(map(str, names))
    if len(set(own)) < len(own):
        checks.refuse("names", owner, "different from each other", checks.listed(own, 100))
    places = {name: i for i, name in enumerate(own)}
    said = [str(one) for one in np.asarray(actions).reshape(-1).tolist()]
    if len(said) != n:
        checks.refuse("actions", owner, f"{n} long", len(said))
    for row, one in enumerate(said):
        if one not in places:
            must = f"among those that the policy knows: {checks.listed(own, 100)}"
            checks.refuse("actions", owner, must, f"'{one}' in row {row} (from 0)")
    return torch.tensor([places[one] for one in said], dtype=torch.int64), own


def _numbers(table: pa.Table, name: str, at: Address) -> NDArray[np.float64]:
    column = plain(table.column(name), name, at.path.name)
    if kind_of(column) == "text":
        checks.refuse(name, at.path.name, "numbers", f"text such as '{column.drop_null()[0]}'")
    return floats(column, name, at.path.name)


def _names(table: pa.Table, at: Address) -> list[str]:
    """Actions as texts; whole numbers as they are written without a point."""
    column = plain(table.column("action"), "action", at.path.name)
    if kind_of(column) == "text":
        if column.null_count:
            row = next(i for i, one in enumerate(column.to_pylist()) if one is None)
            checks.refuse("action", at.path.name, "known in every row", f"none in row {row} (from 0)")
        return [str(one) for one in column.to_pylist()]
    whole = floats(column, "action", at.path.name)
    return [f"{one:.0f}" if float(one).is_integer() else repr(float(one)) for one in whole]
