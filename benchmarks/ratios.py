"""ULSIF and kernel KLIEP against densratio and adapt: p = N(0, I), q = N((.5, .5), 1.44 I) in 2-d, 10000 of each.

All sides search one grid (three bandwidths, three ridges) with 100 kernels; a full grid of 81 would take the peers
minutes. The notes give the mean squared error of log r on 5000 fresh samples of p and of q, where a peer's ratios
below 1e-3 count as 1e-3. For KLIEP they give the objective E_p[log r] that a peer reached on its own centres, and the
optimum there by our solver with its certified gap: adapt makes 2000 Frank-Wolfe steps and never looks whether it has
arrived.

Floors. ULSIF: distances once, and for each bandwidth the kernels of both sides, one Gram matrix and its eigenvalues.
KLIEP: distances, kernels of both sides, and one Newton matrix a bandwidth.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from benchmarks import peers
from benchmarks.timing import Row, race
from vestige.core import rng
from vestige.ratios.kernels import gaussian
from vestige.ratios.kliep import KLIEP, best_mixture
from vestige.ratios.least_squares import ULSIF

N, MEAN_Q, SCALE_Q = 10_000, 0.5, 1.2
BANDWIDTHS, LAMBDAS = (0.5, 0.5**0.5, 1.0), (1e-4, 1e-3, 1e-2)


def draw(n: int, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    p, q = (torch.randn(n, 2, generator=rng.fork(0, name, side), dtype=torch.float64) for side in "pq")
    return p, MEAN_Q + SCALE_Q * q


def error(log_ratio: torch.Tensor, x: torch.Tensor) -> float:
    truth = ((x - MEAN_Q) / SCALE_Q).square().sum(1) / 2 - x.square().sum(1) / 2 + 2 * math.log(SCALE_Q)
    return float((log_ratio - truth).square().mean())


def floor(p: torch.Tensor, q: torch.Tensor, sigmas: list[float], eigen: bool) -> None:
    """The products that no implementation avoids."""
    centres = q[:100]
    near = [torch.addmm(x.square().sum(1, keepdim=True), x, centres.mT, alpha=-2) for x in (p, q)]
    for sigma in sigmas:
        phi_p, phi_q = ((near_x * (-0.5 / sigma**2)).exp_() for near_x in near)
        if eigen:
            torch.linalg.eigh(phi_q.mT @ phi_q)
        else:
            phi_p.mT @ phi_p


def rows() -> list[Row]:
    p, q = draw(N, "train")
    x = torch.cat(draw(5000, "test"))
    median = ULSIF(bandwidths=[1.0], lambdas=[1e-3]).fit(p, q).report_["median_distance"]
    # In the units of the data, for peers that do not standardise; q is round, so these are the same kernels.
    sigmas = [m * median * SCALE_Q for m in BANDWIDTHS]
    return [*_ulsif(p, q, x, sigmas), *_kliep(p, q, x, sigmas)]


def _ulsif(p: torch.Tensor, q: torch.Tensor, x: torch.Tensor, sigmas: list[float]) -> list[Row]:
    fits = {}

    def ours() -> None:
        fits["ours"] = ULSIF(bandwidths=BANDWIDTHS, lambdas=LAMBDAS).fit(p, q)

    def by_densratio() -> None:
        np.random.seed(0)  # noqa: NPY002 - the peer draws from it
        fits["densratio"] = densratio.densratio(
            p.numpy(), q.numpy(), sigma_range=sigmas, lambda_range=list(LAMBDAS), kernel_num=100, verbose=False
        )

    def by_adapt() -> None:
        np.random.seed(0)  # noqa: NPY002 - the peer draws from it
        gammas = [0.5 / s**2 for s in sigmas]
        model = adapt.instance_based.ULSIF(gamma=gammas, lambdas=list(LAMBDAS), max_centers=100, verbose=0)
        model.fit_weights(q.numpy(), p.numpy())
        fits["adapt"] = model

    read = {
        "densratio": lambda fit: fit.compute_density_ratio(x.numpy()),
        "adapt": lambda fit: fit.predict_weights(x.numpy()),
    }
    densratio, adapt = peers.get("densratio"), peers.get("adapt")
    contenders = {"ours": ours, "floor": lambda: floor(p, q, sigmas, eigen=True)}
    contenders |= {"densratio": by_densratio} if densratio else {}
    contenders |= {"adapt": by_adapt} if adapt else {}
    times = race(contenders, repeats=5)
    mse = f"{error(fits['ours'].log_ratio(x), x):.3f}"
    found = []
    for name in ("densratio", "adapt"):
        note = peers.why_not(name)
        if name in fits:
            ratio = torch.from_numpy(np.array(read[name](fits[name]), dtype=np.float64)).reshape(-1)
            note = f"MSE of log r: ours {mse}, {name} {error(ratio.clamp_min(1e-3).log(), x):.3f}"
        found.append(Row(f"ulsif {N} x 2", times["ours"], name, times.get(name), times["floor"], 1 / 30, note))
    return found


def _kliep(p: torch.Tensor, q: torch.Tensor, x: torch.Tensor, sigmas: list[float]) -> list[Row]:
    adapt = peers.get("adapt")
    found = []
    for label, multiples, used in (
        ("kliep, one bandwidth", BANDWIDTHS[1:2], sigmas[1:2]),
        ("kliep, 3 bandwidths x 5 folds", BANDWIDTHS, sigmas),
    ):
        fits = {}

        def ours(multiples=multiples, fits=fits) -> None:
            fits["ours"] = KLIEP(bandwidths=multiples).fit(p, q)

        def by_adapt(used=used, fits=fits) -> None:
            gammas = [0.5 / s**2 for s in used]
            model = adapt.instance_based.KLIEP(gamma=gammas, max_centers=100, cv=5, verbose=0, random_state=0)
            model.fit_weights(q.numpy(), p.numpy())
            fits["adapt"] = model

        contenders = {"ours": ours, "floor": lambda used=used: floor(p, q, used, eigen=False)}
        times = race(contenders | ({"adapt": by_adapt} if adapt else {}), repeats=5)
        note = peers.why_not("adapt")
        if adapt:
            reached, best, gap = _objectives(p, q, fits["adapt"])
            ratio = torch.from_numpy(fits["adapt"].predict_weights(x.numpy())).clamp_min(1e-3)
            note = (
                f"objective on adapt's centres: adapt {reached:.5f}, optimum {best:.5f} (gap {gap:.0e}); "
                f"MSE of log r: ours {error(fits['ours'].log_ratio(x), x):.3f}, adapt {error(ratio.log(), x):.3f}"
            )
        found.append(Row(label, times["ours"], "adapt", times.get("adapt"), times["floor"], 1 / 10, note))
    return found


def _objectives(p: torch.Tensor, q: torch.Tensor, model) -> tuple[float, float, float]:
    """E_p[log r] that `model` reached, the optimum on its own centres by our solver, and that optimum's gap."""
    centres, sigma = torch.from_numpy(model.centers_), (0.5 / model.best_params_["gamma"]) ** 0.5
    phi_p, phi_q = (gaussian(torch.cdist(x, centres).square(), sigma) for x in (p, q))
    theta = torch.from_numpy(model.alphas_).reshape(-1)
    normalised = theta / (phi_q.mean(0) @ theta)
    best = best_mixture((phi_p / phi_q.mean(0)).mT.contiguous(), p.new_full((len(p),), 1 / len(p)))
    return float((phi_p @ normalised).log().mean()), best.objective, best.gap
