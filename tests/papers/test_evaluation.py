"""What an audit needs of an experiment: arms with names of their own, streams and learners that are those of a run."""

from dataclasses import dataclass

import pytest

from vestige.core.errors import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.trained import Trained, labelled_arms, labels


@dataclass(frozen=True)
class Arm:
    row: str
    lam: float = 1.0
    way: str = "a"


def test_a_label_has_the_fields_that_tell_arms_apart_and_no_more():
    arms = [Arm("one"), Arm("two", 2.0, "a"), Arm("two", 2.0, "b"), Arm("three", 7.0)]
    assert labels(arms, "alone") == ["one", "two, a", "two, b", "three"]
    assert labels([Arm("one")], "alone") == ["alone"]


AUDITED = [name for name, e in EXPERIMENTS.items() if isinstance(e, Trained)]


def test_the_experiments_that_train_learners_on_streams_can_be_audited():
    assert {"rwalk-table1-mnist", "rwalk-fig4", "robust-audit"} <= set(AUDITED)


@pytest.mark.parametrize("name", AUDITED)
def test_arms_have_names_of_their_own_and_can_be_made(name):
    experiment, found = labelled_arms(EXPERIMENTS[name], "smoke")
    assert len(found) == len(experiment.arms(experiment.presets["smoke"]))  # no label twice
    for arm in found.values():  # a task is as long as its epochs or its iterations say, and never both
        lengths = [length for length in (arm.epochs, experiment.options(arm).get("iterations")) if length is not None]
        assert len(lengths) == 1
        assert lengths[0] > 0
        assert arm.batch_size > 0
    stream, learner = experiment.parts(next(iter(found.values())), 0)
    assert len(stream) > 1
    assert learner.spec.n_outputs == stream.n_outputs


@pytest.mark.parametrize("name", ["cdre-fig2a", "beyond-chain"])
def test_an_experiment_without_a_stream_is_refused(name):
    with pytest.raises(InputError, match=f"stream of tasks. Got {name}"):
        labelled_arms(EXPERIMENTS[name], "smoke")
