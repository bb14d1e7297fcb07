"""An experiment whose every number is known: the mean of a die."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from vestige.runner.claims import Claim, Finding, Rule
from vestige.runner.experiment import Experiment, line


@dataclass(frozen=True)
class Config:
    """A die that is thrown `throws` times."""

    throws: int = 100
    sides: tuple[int, ...] = (6,)
    bias: float = 0.0


class Dice(Experiment[Config]):
    """The mean of a die."""

    name, item = "dice", "Table 0"
    rule = Rule(Claim("the mean is within a tenth of 3.5", lambda mean: Finding(abs(mean - 3.5) < 0.1, f"{mean:.2f}")))
    presets: ClassVar = {"smoke": Config(10), "laptop": Config(), "paper": Config(10_000)}
    seeds: ClassVar = {"smoke": 1, "laptop": 2, "paper": 3}
    cut: ClassVar = {"smoke": "ten throws", "laptop": "a hundredth of the throws"}

    def arms(self, config):
        return [Config(config.throws, (n,), config.bias) for n in config.sides]

    def run(self, config, seed, on_progress):
        on_progress(0.5, "half way")
        generator = torch.Generator().manual_seed(seed)
        thrown = torch.randint(1, config.sides[0] + 1, (config.throws,), generator=generator).double()
        return self.record(config, seed, values={"mean": thrown.mean() + config.bias})

    def lines(self, records):
        return [line("die", "mean", [float(r.values["mean"]) for r in records], paper=3.5)]

    def facts(self, records):
        return self.lines(records)[0].ours
