"""Resamples: everything once in row 0, members before trajectories, percentiles."""

import pytest
import torch

from vestige.policy.estimators import episode_counts, interval, trajectory_counts


def test_the_first_row_is_the_sample_itself():
    g = torch.Generator().manual_seed(0)
    for counts in (episode_counts(6, 50, g), trajectory_counts(6, 3, 50, g)):
        assert counts.shape == (51, 6)
        assert counts[0].tolist() == [1] * 6
        assert counts.sum(1).tolist() == [6] * 51
        assert not bool((counts[1:] == 1).all())


def test_members_are_drawn_before_their_trajectories():
    counts = trajectory_counts(40, 4, 4000, torch.Generator().manual_seed(0))[1:].reshape(4000, 4, 10)
    per_member = counts.sum(2)
    assert bool((per_member % 10 == 0).all())  # a member comes with ten trajectories, or not at all
    drawn = per_member / 10
    # Four draws among four: each count is binomial(4, 1/4).
    assert float(drawn.var()) == pytest.approx(4 * 0.25 * 0.75, rel=0.1)
    assert counts.mean().item() == pytest.approx(1)


def test_an_interval_is_two_percentiles():
    assert interval(torch.arange(101, dtype=torch.float64), 0.9) == pytest.approx((5, 95))
