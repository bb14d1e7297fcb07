"""Grids show the samples asked for, curves the report; packed images come back to half a level."""

import io

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from vestige import store
from vestige.core.errors import InputError
from vestige.generators import build
from vestige.generators.pictures import LEVELS, grid, pack, sample_grid, training_curves, unpack
from vestige.show import encode


@pytest.fixture(scope="module")
def vae():
    x = torch.rand(40, 5, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(40) % 2
    return build("vae", shape=(5, 4), conditions=3, encoder=(8,), decoder=(8,), steps=60, collapse=0.0).fit(x, y)


def drawn(figure):
    return np.asarray(figure.axes[0].images[0].get_array())


def test_a_grid_holds_the_very_samples_row_by_row(vae):
    figure = sample_grid(vae, columns=3, seed=4)
    canvas, samples = drawn(figure), vae.sample_each([0, 0, 0, 1, 1, 1], seed=4)
    assert canvas.shape[:2] == (2 * 5 + 1, 3 * 4 + 2)
    np.testing.assert_allclose(canvas[6:11, 5:9, 0], samples[4].numpy(), atol=1e-6)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0", "1"]
    assert len(drawn(sample_grid(vae, [1], columns=2))) == 5
    assert imread(io.BytesIO(encode(figure, "png"))).ndim == 3


def test_values_beyond_black_and_white_widen_the_range():
    x = torch.tensor([-1.0, 0.0, 1.0, 3.0]).reshape(1, 2, 2)
    assert drawn(grid(x, columns=1, rows=["a"], title="t"))[..., 0].ravel().tolist() == [0, 0.25, 0.5, 1]
    colour = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    canvas = drawn(grid(colour, columns=2, rows=["a"], title="t"))
    np.testing.assert_allclose(canvas[:, :5], colour[0].permute(1, 2, 0).numpy(), atol=1e-6)


def test_curves_are_those_of_the_report(vae):
    figure = training_curves(vae.report_)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    for name, values in vae.report_["curves"].items():
        assert list(lines[name].get_ydata()) == pytest.approx(values)
        assert lines[name].get_xdata()[-1] == vae.report_["steps"]


@pytest.mark.parametrize("shape", [(3, 5, 5), (4, 6, 6), (1, 7), (2, 3, 3, 3)])
def test_packed_images_come_back_to_half_a_level(shape):
    x = torch.rand(*shape, generator=torch.Generator().manual_seed(0))
    packed = pack(x)
    assert store.canonical(packed)
    back = unpack(packed)
    assert back.shape == x.shape
    assert float((back - x).abs().max()) <= 0.5 / (LEVELS - 1) + 1e-6
    assert torch.equal(unpack(pack(back)), back)
    assert unpack(pack(torch.tensor([[-1.0, 2.0]]))).tolist() == [[0, 1]]


def test_nothing_to_show_is_refused(vae):
    for call in (
        lambda: sample_grid(build("vae", shape=(2, 2))),
        lambda: sample_grid(vae, columns=0),
        lambda: training_curves({}),
    ):
        with pytest.raises(InputError):
            call()
