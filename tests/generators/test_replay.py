"""What is replayed is drawn by the generator of before the fit, however far the one in training has moved."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from vestige.core import rng
from vestige.core.checks import learnt
from vestige.generators import Generator, ReplaySource
from vestige.generators.vae import VAE


class Level(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.zeros(()))


@dataclass(eq=False)
class Moving(Generator):
    """Every sample is how often it was fitted; a fit first moves, then asks for what is replayed."""

    name: ClassVar[str] = "moving"
    shape: tuple[int, ...] = (2,)
    conditions: int = 3
    collapse: float = 0.0
    net_: nn.Module = learnt()

    def _build(self, seed):
        self.net_ = Level()

    def _fit(self, source, seed, on_progress):
        self.net_.level += 1
        epochs = [source.epoch(12, rng.fork(seed, "epoch", i)) for i in range(2)]
        return {"steps": 1, "curves": {}, "seen": [(c.tolist(), x[:, 0].tolist()) for x, c in epochs]}

    def _draw(self, conditions, noise):
        return self.net_.level.repeat(len(conditions), 2)


def test_every_epoch_is_replayed_by_the_generator_of_before_and_new_conditions_are_not():
    generator, x = Moving(), torch.full((6, 2), 9.0)
    for task in (0, 1, 0):
        generator.fit(x, task)
    for conditions, values in generator.report_["seen"]:  # condition 0 came again: its data alone counts
        assert dict(zip(conditions, values, strict=True)) == {0: 9.0, 1: 2.0}
    assert generator.report_["replayed"] == [1]


def test_a_vae_replays_what_it_was_with_codes_of_then():
    generator = VAE(shape=(4,), conditions=2, codes=2, encoder=(4,), decoder=(4,), steps=3, batch_size=8, collapse=0.0)
    generator.fit(torch.rand(20, 4, generator=torch.Generator().manual_seed(0)), 0)
    before = generator.copy()
    new = ReplaySource(torch.rand(8, 4), torch.ones(8, dtype=torch.int64), [0], generator.draw)
    paired = generator._paired(new)
    with torch.no_grad():
        for parameter in generator.net_.parameters():
            parameter.add_(1.0)  # as training would
    rows, conditions = paired.epoch(40, rng.fork(0, "epoch"))
    old = rows[conditions == 0]
    with torch.no_grad():
        expected = before._decode(old[:, 4:], torch.zeros(len(old), dtype=torch.int64), torch.Generator())
    torch.testing.assert_close(old[:, :4], expected)
    assert old[:, 4:].isfinite().all()
    assert rows[conditions == 1][:, 4:].isnan().all()
