"""Telescoping against the closed form that one classifier misses, and its promises about rows of p."""

import math

import pytest
import torch

from vestige import store
from vestige.core.errors import InputError, StoreError
from vestige.ratios import Ratio
from vestige.ratios.base import Sample, known_ratios
from vestige.ratios.bridge import Bridge, waymark
from vestige.ratios.least_squares import ULSIF
from vestige.ratios.logistic import Logistic
from vestige.ratios.stack.stack import Stack


def gaussian(n, d, mean=0.0, scale=1.0, seed=0):
    return mean + scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_jump_of_17_nats_in_10_dimensions():
    p, q, fresh = gaussian(10000, 10), gaussian(10000, 10, 1.0, 0.6, 1), gaussian(10000, 10, seed=2)
    true = 10 * (math.log(0.6) + 2 / 0.72 - 0.5)  # 17.67
    direct = float(Logistic(kind="quadratic").fit(p, q).log_ratio(fresh).mean())
    bridged = float(Bridge().fit(p, q).log_ratio(fresh).mean())
    assert bridged == pytest.approx(true, rel=0.08)
    assert abs(direct - true) > 2 * abs(bridged - true)


def test_without_waymarks_it_is_the_base():
    p, q = gaussian(500, 2), gaussian(500, 2, 0.5, 0.8, 1)
    base = Logistic(kind="quadratic", ridge=0.0)  # without a ridge the standardisation does not matter
    torch.testing.assert_close(
        Bridge(base, waymarks=0).fit(p, q).log_ratio(p), base.fit(p, q).log_ratio(p), atol=1e-4, rtol=1e-4
    )


def test_waymarks_have_the_moments_of_the_mixture():
    p, q = gaussian(40000, 1, 1.0, 2.0), gaussian(30000, 1, -3.0, 0.5, 1)
    x = waymark(Sample(p, q), 0.6, generator=torch.Generator().manual_seed(0))
    assert len(x) == 40000
    assert float(x.mean()) == pytest.approx(0.8 * 1.0 + 0.6 * -3.0, abs=0.03)
    assert float(x.var()) == pytest.approx(0.64 * 4 + 0.36 * 0.25, rel=0.03)


def test_weights_tilt_both_ends():
    x, y = gaussian(6000, 1), gaussian(6000, 1, seed=1)
    grid = torch.linspace(-1, 2, 7, dtype=torch.float64)[:, None]
    bridge = Bridge(Logistic(kind="linear"), waymarks=3)
    up = bridge.fit(x, y, p_weights=torch.exp(x[:, 0])).log_ratio(grid)
    assert float((up - (grid[:, 0] - 0.5)).abs().max()) < 0.3
    down = bridge.fit(y, x, q_weights=torch.exp(x[:, 0])).log_ratio(grid)
    assert float((down + (grid[:, 0] - 0.5)).abs().max()) < 0.3


def test_a_base_that_keeps_rows_is_refused():
    for base in (ULSIF(), Bridge(ULSIF())):
        with pytest.raises(InputError, match="keeps no rows"):
            Bridge(base).fit(gaussian(20, 2), gaussian(20, 2, seed=1))
    with pytest.raises(InputError, match="waymarks"):
        Bridge(waymarks=-1).fit(gaussian(20, 2), gaussian(20, 2, seed=1))


def test_the_base_is_left_unfitted_and_any_ratio_serves():
    base = Stack(max_steps=20, wide=0)
    bridge = Bridge(base, waymarks=1).fit(gaussian(200, 2), gaussian(200, 2, 0.5, seed=1))
    assert base.width_ is None
    assert len(bridge.report_["jumps"]) == len(bridge.report_["kl_of_jumps"]) == 2


def test_save_load_and_a_missing_jump(tmp_path):
    p, q = gaussian(200, 2), gaussian(200, 2, 0.5, seed=1)
    bridge = Bridge(waymarks=2).fit(p, q)
    loaded = Ratio.load(bridge.save(tmp_path / "bridge.json"))
    assert torch.equal(loaded.log_ratio(q), bridge.log_ratio(q))
    data, tensors = store.encode(bridge)
    tensors = {k: v for k, v in tensors.items() if not k.startswith("jumps_.1.")}
    with pytest.raises(StoreError, match=r"jumps_\.1"):
        store.decode(Ratio, data, tensors, classes=known_ratios())
