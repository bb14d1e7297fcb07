"""1000 bootstrap fits of a 100-unit MLP on n = 100 a side (the setting of lfiw.txt Fig. 1) against scikit-learn's.

Both sides fit the same resamples: p is 100 rows of a mixture of two Gaussians, resampled; q is 100 fresh draws of the
Gaussian fitted to p. The peer is `MLPClassifier` as its users run it, in a loop: 100 hidden units, Adam 1e-3, batches
of 200 (the whole resample), at most 200 iterations. It is timed on PEER_FITS of the fits and scaled up; it is linear.

"same recipe" trains ours for as many full-batch steps at the same constant-order learning rate; "default" is what a user
gets from `Logistic(hidden=(100,))`, with held-out rows for early stopping. The note gives what both reached: mean
log-loss on a test set of 20000 fresh rows, where log 2 = 0.693 is a coin and `best` the true ratio. The floor is the two
products of the hidden layer that each step cannot avoid.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from sklearn.neural_network import MLPClassifier

from benchmarks.timing import Row, race
from vestige import rng
from vestige.ratios.bootstrap import Bootstrap, bootstrap, counts
from vestige.ratios.logistic import Logistic

FITS, PEER_FITS, N, HIDDEN, STEPS, TEST = 1000, 50, 100, 100, 200, 10000


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

    def peer() -> None:
        peers.clear()
        for i in range(PEER_FITS):
            times = counts(N, rng.fork(0, "resample", "p", i)).long()
            x = torch.cat([p.repeat_interleave(times, 0), draw(N, rng.child_seed(0, "draw", i))]).numpy()
            y = np.repeat([1, 0], N)
            peers.append(MLPClassifier((HIDDEN,), batch_size=200, max_iter=STEPS, random_state=i).fit(x, y))

    def fit(name: str, estimator: Logistic) -> None:
        ours[name] = bootstrap(estimator, p, q, FITS, q_sampler=draw)

    # As many steps on (nearly) all rows; a cosine from 2e-3 has the mean rate 1e-3.
    same = Logistic(hidden=(HIDDEN,), lr=2e-3, decay=0.0, steps=STEPS, check_every=STEPS, held_out=0.01, batch=200)
    x_one, w_one = torch.randn(32, 2 * N, 2), torch.randn(32, 2, HIDDEN)
    hidden, g = torch.empty(32, 2 * N, HIDDEN), torch.randn(32, 2, 2 * N)

    def floor() -> None:
        for _ in range(STEPS * FITS // 32):
            torch.bmm(x_one, w_one, out=hidden)
            torch.bmm(g, hidden)

    times = race(
        {
            "same": lambda: fit("same", same),
            "default": lambda: fit("default", Logistic(hidden=(HIDDEN,))),
            "sklearn": peer,
            "floor": floor,
        },
        repeats=3,
        seconds=90,
    )
    x = torch.cat([test_p, test_q]).numpy()
    logits = torch.tensor(np.array([np.subtract(*m.predict_log_proba(x).T[::-1]) for m in peers]))
    truth = [
        log_mixture(t[:, 0]) + (t[:, 0] - mean).square() / (2 * deviation**2) + deviation.log()
        for t in (test_p, test_q)
    ]
    reached = {"sklearn": log_loss(logits[:, :TEST], logits[:, TEST:]), "best": log_loss(*truth)}
    reached |= {
        k: log_loss(torch.as_tensor(b.members(test_p)), torch.as_tensor(b.members(test_q))) for k, b in ours.items()
    }
    sklearn = times["sklearn"] * FITS / PEER_FITS
    return [
        Row(
            f"bootstrap {FITS} x MLP({HIDDEN}), n={N}: {label}",
            times[key],
            "sklearn MLPClassifier, loop",
            sklearn,
            floor=times["floor"] if key == "same" else None,
            at_most=1 / 10,
            note=f"test log-loss ours {reached[key]:.4f}, sklearn {reached['sklearn']:.4f}, best {reached['best']:.4f}",
        )
        for key, label in (("same", "same recipe"), ("default", "default"))
    ]
