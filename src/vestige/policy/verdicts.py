"""What speaks against an evaluation, in words: limits are fields of `Limits`, and each sentence names its number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Where a warning begins; `outside_bad`, `clipped` and `accuracy` make the verdict "unreliable"."""

    outside: float = 0.05  # share of simulated steps beyond the logs
    outside_bad: float = 0.25
    clipped: float = 0.01  # share of simulated states that met the limits of the state space
    accuracy: float = 0.95  # of a classifier that tells real transitions from simulated ones
    alpha: float = 0.1  # exponent below which weights only choose softly
    equal: float = 0.99  # effective share above which weights are equal: there is nothing to correct
    episodes: int = 20
    whole: int = 2  # logged episodes that have all steps of the horizon
    lost: float = 0.05  # share of resamples in which fitted Q runs away
    reward_gap: float = 0.5  # root mean square of r(s, a, s') less the logged reward, in deviations of the latter
    reward_shift: float = 0.1  # its mean, likewise


def judge(
    estimates: Mapping[str, tuple[float, float, float]],
    *,
    trajectories: int,
    raw_ess: float,
    alpha: float,
    outside: float,
    own: float,
    clipped: float,
    accuracy: float,
    terminal: bool,
    episodes: int,
    whole: int,
    horizon: int,
    lost: float = 0.0,
    reward_gap: tuple[float, float] = (0.0, 0.0),
    limits: Limits | None = None,
) -> tuple[str, tuple[str, ...]]:
    """The verdict, and what it rests on; `estimates` are (value, low, high) by name.

    `whole` episodes have `horizon` steps or ended before; `lost` is the share of fitted Q's resamples that ran away;
    `reward_gap` is (root mean square, mean) of the known reward less the logged one, in deviations of the latter.
    """
    limits = limits or Limits()
    bad: list[str] = []
    care: list[str] = []
    if outside > limits.outside:
        (bad if outside > limits.outside_bad else care).append(
            f"{outside:.0%} of the simulated steps lie beyond the logs ({own:.0%} of the logs' own rows do): the "
            "policy goes where nothing was seen, and neither the model nor its weights know what happens there."
        )
    if clipped > limits.clipped:
        bad.append(f"{clipped:.1%} of the simulated states ran to the limits of the state space: the model diverges.")
    if accuracy > limits.accuracy:
        bad.append(
            f"A classifier tells real transitions from simulated ones with accuracy {accuracy:.3f}: "
            "the model is too far off for weights to mend."
        )
    if alpha < limits.alpha:
        care.append(
            f"Untempered, the weights are worth {raw_ess:.1f} trajectories; they were flattened with exponent "
            f"{alpha:.2g}. That is a soft choice of trajectories that look real, not the whole correction."
        )
    value, (_, low, high) = estimates["lfiw_tempered"][0], estimates["shuffled"]
    if low <= value <= high and raw_ess < limits.equal * trajectories:
        care.append(
            f"Weights dealt at random give {low:.4g} to {high:.4g}: the weighted value {value:.4g} is no correction."
        )
    if terminal:
        care.append("The logs hold terminal states; the model simulates on as if no episode ended.")
    if episodes < limits.episodes:
        care.append(f"There are {episodes} logged episodes: their first states stand for all that may be.")
    if whole < limits.whole:
        care.append(
            f"{'One logged episode has' if whole == 1 else 'No logged episode has'} {horizon} steps: what is said of "
            "the later ones is the model's word alone."
        )
    if not math.isfinite(estimates["fitted_q"][0]):
        care.append("Fitted-Q evaluation ran away: its features do not carry this policy.")
    elif lost > limits.lost:
        care.append(f"Fitted-Q evaluation ran away in {lost:.0%} of the resamples: its value hangs on few episodes.")
    spread, shift = reward_gap
    if spread > limits.reward_gap or abs(shift) > limits.reward_shift:
        care.append(
            f"The reward function that was given is not what the logs paid: it is off by {spread:.2g} deviations of "
            f"the logged reward (root mean square), {shift:+.2g} on average."
        )
    return "unreliable" if bad else "usable with care" if care else "good", (*bad, *care)
