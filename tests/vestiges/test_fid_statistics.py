"""Files of mu and sigma answer the FID of the tools that write them, and nothing else."""

import json
import math

import numpy as np
import pytest
import scipy.linalg
import torch

import vestige as vs
from vestige.cli import main
from vestige.core.errors import InputError, NotEstimable
from vestige.core.numerics import Moments
from vestige.metrics.fid import _gradient, fid
from vestige.vestiges.fid_statistics import ALONE, FidStatistics

G = np.random.default_rng(0)
MIX = G.normal(size=(5, 5))
P, Q = G.normal(size=(900, 5)) @ MIX, 0.4 + G.normal(size=(700, 5)) @ (MIX + 0.3)


def by_sqrtm(p, q):
    """As pytorch-fid and clean-fid compute it."""
    gap, s_p, s_q = p.mean(0) - q.mean(0), np.cov(p, rowvar=False), np.cov(q, rowvar=False)
    root = scipy.linalg.sqrtm(s_p @ s_q)
    return gap @ gap + np.trace(s_p) + np.trace(s_q) - 2 * np.trace(root).real


def written(path, rows=P, **more):
    """As those tools write it."""
    np.savez_compressed(path, mu=np.mean(rows, axis=0), sigma=np.cov(rows, rowvar=False), **more)
    return path


def test_fid_is_that_of_the_tools(tmp_path):
    stats = FidStatistics.load(written(tmp_path / "p.npz"))
    found = vs.compare(stats, Q)
    assert found.metrics["fid"].value == pytest.approx(by_sqrtm(P, Q), abs=1e-6)
    assert stats.n is None
    assert repr(stats) == "FidStatistics of an unknown number of rows: 5 features; answers FID alone"
    assert found.warnings[0].startswith("The interval of FID is about the new rows alone")
    others = [one for name, one in (found.metrics | found.divergences).items() if not name.startswith("fid")]
    assert {one.reason for one in others} == {ALONE}
    assert found.conclusion.endswith(ALONE)
    assert found.advice.startswith("FID is all that 'mu' and 'sigma' tell")
    assert repr(found).startswith(f"Comparison({len(Q)} rows of 5 features: ")
    assert "nan" not in repr(found)
    wide = G.normal(size=(30, 64)), G.normal(1, 1, size=(40, 64))  # fewer rows than features
    found = vs.compare(FidStatistics.load(written(tmp_path / "wide.npz", wide[0])), torch.from_numpy(wide[1]))
    assert found.metrics["fid"].value == pytest.approx(by_sqrtm(*wide), abs=1e-3)
    assert not found.metrics["fid_extrapolated"].known


@pytest.mark.slow
def test_a_vestige_writes_what_the_tools_read(tmp_path):
    kept = vs.keep(P)
    path = kept.to_fid_stats(tmp_path / "kept.npz")
    with np.load(path) as file:
        deviation = P.std(0)  # what is kept is rounded to a hundredth of its standard error
        assert (np.abs(file["mu"] - P.mean(0)) < 0.01 * deviation / 30).all()
        most = np.outer(deviation, deviation) * 0.02 / 30
        assert (np.abs(file["sigma"] - np.cov(P, rowvar=False)) < most).all()
    stats = FidStatistics.load(path)
    assert stats.n == 900
    found = vs.compare(stats, Q)
    assert found.metrics["fid"].value == pytest.approx(vs.compare(kept, Q).metrics["fid"].value)
    assert found.warnings == ()


def test_the_error_of_the_data_is_that_of_normal_features_over_n():
    """The closed form against many draws of the data, and the whole against the delta method with rows."""
    sigma = torch.from_numpy(np.cov(P, rowvar=False))
    mean, n = torch.from_numpy(P.mean(0)), 400
    p, q = Moments(0, 1.0, 0.0, mean, sigma), Moments.of(torch.from_numpy(Q))
    slope = _gradient(p, q)[0][0]
    root = np.linalg.cholesky(sigma.numpy())
    draws = [G.normal(size=(n, 5)) @ root.T + P.mean(0) for _ in range(600)]
    spread = np.var([by_sqrtm(x, Q) for x in draws])
    assert slope.variance_of_normal(sigma, n) == pytest.approx(spread, rel=0.2)
    with_rows = fid(P, Q, std_error=True).std_error
    assert vs.compare(FidStatistics(mean, sigma, 900), Q).metrics["fid"].std_error == pytest.approx(with_rows, rel=0.1)
    alone = vs.compare(FidStatistics(mean, sigma), Q).metrics["fid"].std_error
    assert 0 < alone < 0.95 * with_rows


def test_the_bias_of_the_new_rows_is_removed():
    truth, means = FidStatistics(torch.zeros(5).double(), torch.eye(5).double()), []
    for _ in range(60):
        found = vs.compare(truth, G.normal(size=(100, 5))).metrics
        means.append((found["fid"].value, found["fid_extrapolated"].value))
    plain, less = np.mean(means, 0)
    assert plain > 0.1
    assert abs(less) < 0.05


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"mu": np.zeros(3)}, "one without 'sigma'"),
        ({"mu": np.zeros(3), "sigma": np.eye(2)}, r"'sigma' of d x d. Got \(3,\) and \(2, 2\)"),
        ({"mu": np.array([1.0, np.nan]), "sigma": np.eye(2)}, "finite numbers in 'mu'"),
        ({"mu": np.zeros(2), "sigma": np.array([[1.0, 5.0], [0.0, 1.0]])}, "not symmetric"),
        ({"mu": np.zeros(2), "sigma": -np.eye(2)}, "negative variances"),
        ({"mu": np.zeros(2), "sigma": np.eye(2), "n": np.array(1.5)}, "an 'n' that is a number of rows"),
        ({"mu": np.array([object()] * 2), "sigma": np.eye(2)}, "cannot be read"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path, arrays, told):
    path = tmp_path / "bad.npz"
    np.savez(path, allow_pickle=True, **arrays)
    with pytest.raises(InputError, match=told):
        FidStatistics.load(path)


def test_pickles_are_not_read_and_rows_must_fit(tmp_path):
    torch.save({"mu": P.mean(0), "sigma": np.cov(P.T)}, tmp_path / "cache.pt")  # as torch-fidelity does
    with pytest.raises(
        InputError, match=r"an \.npz file with 'mu' and 'sigma'. Got one that ends in '\.pt'; of a pickle"
    ):
        FidStatistics.load(tmp_path / "cache.pt")
    stats = FidStatistics.load(written(tmp_path / "p.npz"))
    with pytest.raises(InputError, match=r"'q' of compare must be 5 features wide. Got 2"):
        vs.compare(stats, Q[:, :2])
    for stats_or_name in (stats, tmp_path / "p.npz"):
        with pytest.raises(NotEstimable, match="answers FID alone"):
            vs.weigh(stats_or_name, Q)
        assert vs.compare(stats_or_name, Q).metrics["fid"].known
    with pytest.raises(InputError, match="'q_weights' of compare must be None"):
        vs.compare(stats, Q, q_weights=np.ones(len(Q)))


def test_the_shell_reads_and_writes_them(tmp_path, capsys):
    written(tmp_path / "p.npz")
    np.save(tmp_path / "q.npy", Q)
    np.save(tmp_path / "rows.npy", P)
    assert main(["compare", str(tmp_path / "p.npz"), str(tmp_path / "q.npy"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"]["fid"]["value"] == pytest.approx(by_sqrtm(P, Q), abs=1e-6)
    assert found["divergences"]["js"]["reason"] == ALONE
    assert main(["compare", str(tmp_path / "p.npz"), str(tmp_path / "q.npy")]) == 0
    assert ALONE in " ".join(capsys.readouterr().out.split())
    assert main(["weigh", str(tmp_path / "p.npz"), str(tmp_path / "q.npy"), "-o", str(tmp_path / "w.npy")]) == 1
    made = tmp_path / "made.npz"
    keep = ["keep", str(tmp_path / "rows.npy"), "-o", str(tmp_path / "p.vestige"), "--fid-stats", str(made)]
    assert main(keep) == 0
    assert vs.compare(FidStatistics.load(made), Q).metrics["fid"].value == pytest.approx(by_sqrtm(P, Q), abs=2e-3)
    assert main([*keep[:2], "-o", str(tmp_path / "z.vestige"), "--fid-stats", str(tmp_path / "x.npy")]) == 2
    assert math.isfinite(FidStatistics.load(made).n)
