"""Metrics against torchmetrics, torch-fidelity, prdc and the reference algorithm of PRD."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings

import numpy as np
import torch
from sklearn.cluster import MiniBatchKMeans

from benchmarks import peers
from benchmarks.timing import Row, race
from vestige.metrics.fid import fid
from vestige.metrics.mmd import kid
from vestige.metrics.precision_recall import prd, precision_recall_density_coverage


def _peer(name: str, module: str):
    """A module of a peer."""
    return importlib.import_module(module) if peers.get(name) is not None else None


class Identity(torch.nn.Module):
    """A feature extractor that hands its input on."""

    def __init__(self, width: int):
        super().__init__()
        self.num_features = width

    def forward(self, x):
        return x


def _features(n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(d, d, generator=generator) / d**0.5
    p, q = torch.randn(n, d, generator=generator) @ mixing, torch.randn(n, d, generator=generator) @ mixing
    return p, 1.1 * q + 0.05


def _missing(name: str, peer: str, times: dict[str, float], at_most: float) -> Row:
    return Row(name, times["ours"], peer, None, floor=times["floor"], at_most=at_most, note=peers.why_not(peer))


def _against(name: str, contenders: dict, quantity: str, targets: dict[str, float], **options) -> list[Row]:
    """One row a peer; the note holds the values of both."""
    values = {}

    def kept(key: str):
        return lambda: values.update({key: contenders[key]()})

    times = race({key: kept(key) for key, call in contenders.items() if call is not None}, **options)
    rows = []
    for peer, at_most in targets.items():
        if contenders[peer] is None:
            rows.append(_missing(name, peer, times, at_most))
            continue
        note = f"{quantity} {values['ours']:.6g}, peer's {values[peer]:.6g}"
        rows.append(Row(name, times["ours"], peer, times[peer], floor=times["floor"], at_most=at_most, note=note))
    return rows


def _fid_rows(n: int, d: int, targets: dict[str, float]) -> list[Row]:
    p, q = _features(n, d)
    metrics, fidelity = (
        _peer("torchmetrics", "torchmetrics.image.fid"),
        _peer("torch_fidelity", "torch_fidelity.metric_fid"),
    )

    def torchmetrics_fid() -> float:
        metric = metrics.FrechetInceptionDistance(feature=Identity(d))
        metric.update(p, real=True)
        metric.update(q, real=False)
        return float(metric.compute())

    def torch_fidelity_fid() -> float:
        statistics = [fidelity.fid_features_to_statistics(side) for side in (p, q)]
        return fidelity.fid_statistics_to_metric(*statistics, False)["frechet_inception_distance"]

    p64, q64 = (side.double().numpy() for side in (p, q))

    def products() -> None:
        """Two symmetric products and the eigenvalues of one matrix; with few samples, one product and its values."""
        if n < d:
            torch.linalg.svdvals(torch.from_numpy(p64 @ q64.T))
        else:
            covariance = p64.T @ p64
            covariance += q64.T @ q64
            np.linalg.eigvalsh(covariance)

    contenders = {
        "ours": lambda: fid(p, q).value,
        "torchmetrics": torchmetrics_fid if metrics else None,
        "torch_fidelity": torch_fidelity_fid if fidelity else None,
        "floor": products,
    }
    return _against(f"FID {n} x {d}", contenders, "FID", targets, repeats=2)


def _kid_rows() -> list[Row]:
    n, d = 10_000, 64
    p, q = _features(n, d)
    metrics = _peer("torchmetrics", "torchmetrics.image.kid")

    def torchmetrics_kid() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it will keep every row
            metric = metrics.KernelInceptionDistance(feature=Identity(d), subsets=100, subset_size=1000)
        metric.update(p, real=True)
        metric.update(q, real=False)
        with torch.random.fork_rng():
            torch.manual_seed(0)  # its subsets come from the global generator
            return float(metric.compute()[0])

    # (d+1)(d+2)(d+3)/6 third moments of each set, as one product of that many multiplications.
    pairs = torch.randn((d + 1) * (d + 2) // 2, n, dtype=torch.float64)
    rest = torch.randn((d + 3) // 3, n, dtype=torch.float64)
    contenders = {
        "ours": lambda: kid(p, q).value,
        "torchmetrics": torchmetrics_kid if metrics else None,
        "floor": lambda: [rest @ pairs.mT for _ in range(2)],
    }
    name = f"KID {n} x {d}, whole against 100 subsets"
    return _against(name, contenders, "KID", {"torchmetrics": 0.3})


def reference_prd(p: np.ndarray, q: np.ndarray, *, clusters: int = 20, angles: int = 1001, runs: int = 10) -> float:
    """F_8 as Sajjadi et al. compute it: every pooled row clustered, ten starts, ten runs, curves averaged."""
    slopes = np.tan(np.linspace(1e-10, np.pi / 2 - 1e-10, angles))
    pooled, curves = np.concatenate([q, p]), []
    for run in range(runs):
        labels = MiniBatchKMeans(clusters, n_init=10, random_state=run).fit(pooled).labels_
        bins = np.arange(clusters + 1)
        of_q = np.histogram(labels[: len(q)], bins, density=True)[0]
        of_p = np.histogram(labels[len(q) :], bins, density=True)[0]
        precision = np.minimum(of_p * slopes[:, None], of_q).sum(1)
        curves.append((precision, precision / slopes))
    precision, recall = np.clip(np.mean(curves, 0), 0, 1)
    return float(np.max(65 * precision * recall / (64 * precision + recall + 1e-10)))


def _prd_rows() -> list[Row]:
    n, d = 10_000, 64
    p, q = _features(n, d)
    p32, q32 = p.numpy(), q.numpy()
    centres = torch.randn(200, d)
    contenders = {
        "ours": lambda: prd(p, q).f8,
        "reference": lambda: reference_prd(p32, q32),
        "floor": lambda: [side @ centres.mT for side in (p, q)],  # every row to every centre of ten runs, once
    }
    return _against(f"PRD {n} x {d}", contenders, "F8", {"reference": 1 / 4}, repeats=2)


def _prdc_rows() -> list[Row]:
    n, d = 5_000, 64
    p, q = _features(n, d)
    package = _peer("prdc", "prdc")

    def prdc_coverage() -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            return package.compute_prdc(p.double().numpy(), q.double().numpy(), nearest_k=5)["coverage"]

    p64, q64 = p.double(), q.double()
    contenders = {
        "ours": lambda: precision_recall_density_coverage(p, q).coverage,
        "prdc": prdc_coverage if package else None,
        "floor": lambda: [a @ b.mT for a, b in ((p64, p64), (q64, q64), (p64, q64))],
    }
    name = f"precision, recall, density, coverage {n} x {d}"
    return _against(name, contenders, "coverage", {"prdc": 1.0}, repeats=3)


def rows() -> list[Row]:
    return [
        *_fid_rows(10_000, 2048, {"torchmetrics": 0.6, "torch_fidelity": 0.8}),
        *_fid_rows(500, 2048, {"torchmetrics": 1 / 30, "torch_fidelity": 1 / 30}),
        *_kid_rows(),
        *_prd_rows(),
        *_prdc_rows(),
    ]
