"""1000 bootstrap fits of a 100-unit MLP on n = 100 a side (the setting of LFIW Fig. 1) against scikit-learn's.

Both sides fit the same resamples: p is 100 rows of a mixture of two Gaussians, resampled; q is 100 fresh draws of the
Gaussian fitted to p. The peer is `MLPClassifier` as its users run it, in a loop: 100 hidden units, Adam 1e-3, batches
of 200 (the whole resample), at most 200 iterations. It is timed on PEER_FITS of the fits and scaled up; it is linear.

"same recipe" takes as many full-batch Adam steps, at the same mean learning rate, on all rows. "same loss" takes 60
steps from 1e-2: the fewest, in steps of 20, that passed the peer on training and on test rows of three other data
sets. "default" is what `Logistic(hidden=(100,))` gives its user, who has early stopping on held-out rows in the price.
The note says what both sides reached: the mean log-loss of the first JUDGED members on their own resamples and on
4000 fresh rows, where a coin has 0.693 and "best" is the true ratio. The floor is the two products with the hidden
layer that no step can avoid.
"""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import torch
from sklearn.neural_network import MLPClassifier

from benchmarks.timing import Row, race
from vestige.core import rng
from vestige.ratios.bootstrap import Bootstrap, bootstrap, counts
from vestige.ratios.logistic import Logistic

FITS, PEER_FITS, JUDGED, N, HIDDEN, STEPS, TEST = 1000, 50, 20, 100, 100, 200, 2000


def mixture(n: int, generator: torch.Generator) -> torch.Tensor:
    side = (torch.rand(n, generator=generator, dtype=torch.float64) < 0.5).double() * 2 - 1
    return (2 * side + torch.randn(n, generator=generator, dtype=torch.float64))[:, None]


def log_mixture(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(torch.stack([-(x - 2).square() / 2, -(x + 2).square() / 2]), 0) - np.log(2)


def log_loss(log_p: torch.Tensor, log_q: torch.Tensor) -> float:
    """Balanced log-loss, averaged over whatever axes there are."""
    softplus = torch.nn.functional.softplus
    return float(softplus(-log_p).mean() + softplus(log_q).mean()) / 2


def rows() -> list[Row]:
    warnings.simplefilter("ignore")  # neither side converges in the peer's 200 iterations, and both say so
    p = mixture(N, rng.fork(0, "p"))
    mean, deviation = p.mean(), p.std()

    def draw(n: int, seed: int) -> torch.Tensor:
        return mean + deviation * torch.randn(n, 1, generator=rng.fork(seed, "q"), dtype=torch.float64)

    q = draw(N, 0)
    test_p, test_q = mixture(TEST, rng.fork(1, "test")), draw(TEST, 1)
    peers: list[MLPClassifier] = []
    ours: dict[str, Bootstrap] = {}

    def resampled(i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of member i, the same for both sides."""
        times = counts(N, rng.fork(0, "resample", "p", i)).long()
        return p.repeat_interleave(times, 0), draw(N, rng.child_seed(0, "draw", i))

    def peer() -> None:
        peers.clear()
        for i in range(PEER_FITS):
            x, y = torch.cat(resampled(i)).numpy(), np.repeat([1, 0], N)
            peers.append(MLPClassifier((HIDDEN,), batch_size=200, max_iter=STEPS, random_state=i).fit(x, y))

    def fit(name: str, estimator: Logistic) -> None:
        ours[name] = bootstrap(estimator, p, q, FITS, q_sampler=draw)

    once = {"hidden": (HIDDEN,), "held_out": 0.0, "batch_size": 200, "weight_decay": 0.0}
    estimators = {
        # A cosine from 2e-3 has the mean 1e-3.
        "same recipe": Logistic(learning_rate=2e-3, steps=STEPS, check_every=STEPS, **once),
        "same loss": Logistic(learning_rate=1e-2, steps=60, check_every=60, **once),
        "default": Logistic(hidden=(HIDDEN,)),
    }
    x_one, w_one = torch.randn(32, 2 * N, 2), torch.randn(32, 2, HIDDEN)
    hidden, g = torch.empty(32, 2 * N, HIDDEN), torch.randn(32, 2, 2 * N)

    def floor() -> None:
        for _ in range(STEPS * FITS // 32):
            torch.bmm(x_one, w_one, out=hidden)
            torch.bmm(g, hidden)

    contenders = {name: partial(fit, name, estimator) for name, estimator in estimators.items()}
    times = race(contenders | {"sklearn": peer, "floor": floor}, repeats=3, seconds=60)

    seen = torch.cat([*(torch.cat(resampled(i)) for i in range(JUDGED)), test_p, test_q])

    def judge(log_ratios: torch.Tensor) -> str:
        """Of (rows of `seen`, members): each member on its own resample, and on the test rows."""
        own, test = (
            log_ratios[: 2 * N * JUDGED, :JUDGED].reshape(JUDGED, 2, N, JUDGED),
            log_ratios[-2 * TEST :, :JUDGED],
        )
        train = np.mean([log_loss(own[i, 0, :, i], own[i, 1, :, i]) for i in range(JUDGED)])
        return f"{train:.4f} / {log_loss(test[:TEST], test[TEST:]):.4f}"

    def peer_log_ratio(peer: MLPClassifier) -> torch.Tensor:
        return torch.tensor(np.subtract(*peer.predict_log_proba(seen.numpy()).T[::-1]))

    log_q = [(t[:, 0] - mean).square() / (2 * deviation**2) + deviation.log() for t in (test_p, test_q)]
    best = log_loss(log_mixture(test_p[:, 0]) + log_q[0], log_mixture(test_q[:, 0]) + log_q[1])
    reached = {name: judge(ensemble.members(seen)) for name, ensemble in ours.items()}
    theirs = judge(torch.stack([peer_log_ratio(peer) for peer in peers[:JUDGED]], 1))
    sklearn = times["sklearn"] * FITS / PEER_FITS
    return [
        Row(
            f"bootstrap {FITS} x MLP({HIDDEN}), n={N}: {name}",
            times[name],
            "sklearn MLPClassifier, loop",
            sklearn,
            floor=times["floor"] if name == "same recipe" else None,
            at_most=None if name == "default" else 1 / 10,
            note=f"train / test log-loss: ours {reached[name]}, sklearn {theirs}, best test {best:.4f}",
        )
        for name in estimators
    ]
