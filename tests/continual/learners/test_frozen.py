"""Learners on frozen features: equal to one look at all rows, in whatever batches and order they came."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.learners.fecam import correlation, shrunk
from vestige.continual.learners.frozen import merge_rows
from vestige.core.errors import InputError
from vestige.data.streams import blurred, split


def passed(name, batch_size=7, stream=None, **options):
    """The learner after one pass, and all rows that it saw."""
    stream = stream or split(blobs(), 2)
    learner = build(name, stream, **options)
    x, y = (torch.cat(parts) for parts in zip(*((t.x.clone(), t.y.clone()) for t in stream), strict=True))
    protocol.run(stream, learner, batch_size=batch_size)
    return learner, x.flatten(1).double(), y


def test_merged_statistics_are_those_of_all_rows():
    x = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    count, mean, scatter = 0.0, torch.zeros(4, dtype=torch.float64), torch.zeros(4, 4, dtype=torch.float64)
    for part in x.split([1, 9, 17, 23]):
        count, mean, added = merge_rows(count, mean, part)
        scatter += added
    left = x - x.mean(0)
    torch.testing.assert_close(mean, x.mean(0), atol=1e-12, rtol=0)
    torch.testing.assert_close(scatter, left.mT @ left, atol=1e-10, rtol=0)


def test_ncm_answers_with_the_nearest_mean():
    learner, x, y = passed("ncm")
    means = torch.stack([x[y == c].mean(0) for c in range(6)])
    torch.testing.assert_close(learner.means_, means, atol=1e-10, rtol=0)
    rows = torch.rand(20, 6, 6)
    nearest = (rows.flatten(1).double()[:, None] - means).square().sum(2).argmin(1)
    assert torch.equal(learner.predict(rows).argmax(1), nearest)


class TestSLDA:
    def test_it_is_linear_discriminant_analysis_of_all_rows(self):
        learner, x, y = passed("slda", shrinkage=1e-2)
        left = torch.cat([x[y == c] - x[y == c].mean(0) for c in range(6)])
        covariance = 0.99 * left.mT @ left / len(x) + 0.01 * torch.eye(36, dtype=torch.float64)
        means = torch.stack([x[y == c].mean(0) for c in range(6)])
        rows = torch.rand(20, 36, dtype=torch.float64)
        weights = means @ torch.linalg.inv(covariance)
        expected = rows @ weights.mT - (weights * means).sum(1) / 2
        torch.testing.assert_close(learner.scores(rows), expected, atol=1e-8, rtol=1e-8)

    def test_scikit_learn_agrees(self):
        learner, x, y = passed("slda", shrinkage=1e-12)
        peer = LinearDiscriminantAnalysis(solver="lsqr", priors=np.full(6, 1 / 6)).fit(x.numpy(), y.numpy())
        rows = torch.rand(40, 36, dtype=torch.float64)
        assert (peer.predict(rows.numpy()) == learner.scores(rows).argmax(1).numpy()).all()

    def test_batches_and_order_do_not_matter(self):
        rows = torch.rand(5, 36, dtype=torch.float64)
        one, two = (passed("slda", batch_size=size)[0].scores(rows) for size in (3, 500))
        torch.testing.assert_close(one, two, atol=1e-8, rtol=1e-8)


class TestFeCAM:
    def test_it_is_the_distance_by_brute_force(self):
        options = {"tukey": 0.5, "gamma1": 1.5, "gamma2": 0.5}
        learner, x, y = passed("fecam", **options)
        rows = torch.rand(6, 6, 6)
        found = learner.predict(rows)
        z, seen = rows.flatten(1).double() ** 0.5, x**0.5
        for c in range(6):
            mine = seen[y == c].numpy()
            S = np.cov(mine.T, bias=True)
            f = len(S)
            V1, V2 = np.trace(S) / f, (S.sum() - np.trace(S)) / (f * (f - 1))
            S = S + 1.5 * V1 * np.eye(f) + 0.5 * V2 * (1 - np.eye(f))
            S = S / np.sqrt(np.outer(np.diag(S), np.diag(S)))
            mu = mine.mean(0) / np.linalg.norm(mine.mean(0))
            for i, row in enumerate(z.numpy()):
                gap = row / np.linalg.norm(row) - mu
                assert float(found[i, c]) == pytest.approx(-gap @ np.linalg.inv(S) @ gap, rel=1e-4)

    def test_a_feature_that_never_varies_stands_alone(self):
        S = torch.tensor([[4.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
        found = correlation(shrunk(S, 0.0, 0.0))
        assert found.tolist() == [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("name", ["ncm", "slda", "fecam"])
class TestEach:
    def test_without_borders_the_first_batch_fits_the_map(self, name):
        stream = blurred(blobs(), 2)
        record = protocol.run(stream, build(name, stream), batch_size=10)
        assert float(record.R[-1].nanmean()) > 0.5

    def test_any_map_that_is_fitted_once(self, name):
        stream = split(blobs(), 2)
        learner = build(name, stream, features="pca", options={"dims": 3})
        protocol.run(stream, learner)
        assert learner.means_.shape == (6, 3)
        other = build(name, stream, features="pca", options={"dims": 3})
        other.load_state_dict(learner.state_dict())
        rows = torch.rand(4, 6, 6)
        assert torch.equal(other.predict(rows), learner.predict(rows))

    def test_settings_of_a_network_are_refused(self, name):
        with pytest.raises(InputError, match="no network to train"):
            build(name, split(blobs(), 2), hidden=(3,))

    def test_before_any_row_nothing_can_be_answered(self, name):
        assert (build(name, split(blobs(), 2)).predict(torch.rand(2, 6, 6)) == -torch.inf).all()
