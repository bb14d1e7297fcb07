"""A plugin of Avalanche that collects the accuracy of every experience after every one.

    plugin = AvalancheRecord("er", seed=3)
    strategy = Naive(..., plugins=[plugin])          # its evaluator has accuracy_metrics(experience=True)
    for experience in benchmark.train_stream:
        strategy.train(experience)
        strategy.eval(benchmark.test_stream)
    plugin.save("runs")                              # then: vestige report runs

Evaluations while an experience trains (`eval_every`) do not count; one before any training is the baseline.
"""

from __future__ import annotations

from typing import Any

from avalanche.training.plugins import SupervisedPlugin

from vestige.data.readers.runs import METRIC
from vestige.plugins.accuracies import Accuracies


class AvalancheRecord(SupervisedPlugin):  # type: ignore[misc] # whatever is installed
    """`record()` is the Record of the run so far."""

    def __init__(self, name: str = "avalanche", seed: int = 0) -> None:
        super().__init__()
        self.found = Accuracies(name, seed)
        self.record, self.save = self.found.record, self.found.save
        self.trained: int | None = None
        self.training = False

    def before_training(self, strategy: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Evaluations until it is over are of a model in the making."""
        self.training = True

    def after_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """An experience is learnt."""
        self.trained = int(strategy.experience.current_experience)

    def after_training(self, strategy: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """What is evaluated from now on counts."""
        self.training = False

    def after_eval(self, strategy: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Note the accuracy of each experience that was evaluated."""
        if not self.training:
            metrics = strategy.evaluator.get_last_metrics()
            named = {METRIC.fullmatch(str(name)): value for name, value in metrics.items()}
            self.found.note(self.trained, {int(match[1]): value for match, value in named.items() if match})
