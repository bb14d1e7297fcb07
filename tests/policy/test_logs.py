"""Logs: what they hold, and the one sentence that refuses what they cannot."""

import numpy as np
import pandas as pd
import pytest
import torch

from vestige.core.errors import InputError, VestigeWarning
from vestige.policy import Logs


def columns(**other):
    """Two episodes of 3 and 2 steps in one dimension."""
    s = np.array([[0.0], [1.0], [2.0], [10.0], [11.0]])
    good = {
        "observations": s,
        "actions": np.array([[0.1], [0.2], [0.3], [0.4], [0.5]]),
        "rewards": np.arange(5.0),
        "next_observations": s + 1,
        "episodes": [7, 7, 7, 3, 3],
    }
    return good | other


def test_rows_are_numbered_by_episode_and_step():
    logs = Logs.of(**columns())
    assert logs.episodes.tolist() == [0, 0, 0, 1, 1]
    assert logs.steps.tolist() == [0, 1, 2, 0, 1]
    assert logs.lengths.tolist() == [3, 2]
    assert logs.initial.tolist() == [[0.0], [10.0]]
    assert len(logs) == 5


def test_steps_put_rows_in_order():
    order = [4, 2, 0, 3, 1]
    mixed = {name: np.asarray(value)[order] for name, value in columns().items()}
    logs = Logs.of(**mixed, steps=np.array([5, 2, 0, 4, 1]))
    assert logs.rewards.tolist() == [3, 4, 0, 1, 2]  # episode 3 comes before 7
    with pytest.raises(InputError, match=r"'steps' of Logs must be consecutive .* Got 3 after 1 in episode 7 instead"):
        Logs.of(**columns(), steps=[0, 1, 3, 0, 1])


def test_next_observations_are_those_of_the_next_row():
    logs = Logs.of(**columns(next_observations=None))
    assert logs.next_observations.tolist() == [[1.0], [2.0], [11.0]]
    assert logs.rewards.tolist() == [0, 1, 3]
    assert logs.episodes.tolist() == [0, 0, 1]


def test_only_episodes_that_have_the_steps_or_ended_count():
    rows, alive = Logs.of(**columns()).first(3)
    assert rows.tolist() == [[0, 1, 2]]
    assert alive.all()
    rows, alive = Logs.of(**columns(terminated=[0, 0, 0, 0, 1])).first(3)
    assert rows.tolist() == [[0, 1, 2], [3, 4, 4]]
    assert alive.tolist() == [[True, True, True], [True, True, False]]


def test_floats_stay_as_they_are():
    logs = Logs.of(**columns(observations=torch.zeros(5, 1), next_observations=torch.zeros(5, 1, dtype=torch.float64)))
    assert logs.observations.dtype == logs.next_observations.dtype == torch.float32
    assert logs.rewards.dtype == torch.float64


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"rewards": [0, 1, np.nan, 3, 4]}, "'rewards' of Logs must be finite. Got 1 NaN"),
        ({"rewards": [0, 1, 2, 3]}, "'rewards' of Logs must be 5 long. Got 4"),
        ({"actions": np.zeros((4, 1))}, r"'actions' of Logs must be as many rows as 'observations' \(5\). Got 4"),
        ({"next_observations": np.zeros((5, 2))}, "'next_observations' of Logs must be 1 features wide. Got 2"),
        ({"observations": np.full((5, 1), np.inf)}, "'observations' of Logs must be finite"),
        ({"observations": np.zeros((0, 1))}, "'observations' of Logs must be at least 1 sample"),
        ({"episodes": [1, 1, 1, 1, 1]}, "'episodes' of Logs must be two or more"),
        ({"episodes": [1, 1, 2, 2, 1]}, "'episodes' of Logs must be in one block"),
        ({"episodes": [0.5, 1, 1, 1, 1]}, "'episodes' of Logs must be whole numbers"),
        ({"terminated": [0, 0, 2, 0, 0]}, "'terminated' of Logs must be true or false"),
        ({"terminated": [0, 1, 1, 0, 0]}, "'terminated' of Logs must be true in the last row .* Got true in row 1"),
        (
            {"terminated": [0, 0, 0, 0, 1], "next_observations": None},
            "'next_observations' of Logs must be given where an episode ends in a terminal state. Got none",
        ),
        (
            {"next_observations": np.full((5, 1), 5.0)},
            "'next_observations' of Logs must be the 'observations' of the row that follows .* Got 0 of 3 that are",
        ),
        (
            {"episodes": [2.0**53, 2.0**53, 2.0**53, 1, 1]},
            r"'episodes' of Logs must be integers .* float 9007199254740992",
        ),
        ({"log_probs": [0, 0]}, "'log_probs' of Logs must be 5 long"),
        ({"action_low": [0.0]}, "'action_high' of Logs must be given together"),
        ({"action_low": [0.0], "action_high": [0.0]}, "'action_low' of Logs must be below"),
        ({"action_low": [0.0], "action_high": [0.45]}, r"within the space, here \[0, 0.45\]. Got 0.5 in row 4"),
        ({"episodes": [1, 2, 3, 4, 5], "next_observations": None}, "'next_observations' of Logs must be given"),
    ],
)
def test_a_refusal_is_one_sentence(wrong, sentence):
    with pytest.raises(InputError, match=sentence):
        Logs.of(**columns(**wrong))


def test_rows_that_hardly_chain_are_warned_of():
    """A sample of the rows, or rows that `steps` put in order: it may be meant so."""
    with pytest.warns(VestigeWarning, match="there are 1 of 3 that are"):
        Logs.of(**columns(next_observations=np.array([[1.0], [5.0], [5.0], [5.0], [5.0]])))
    with pytest.warns(VestigeWarning, match="there are 0 of 3 that are"):
        Logs.of(**columns(next_observations=np.full((5, 1), 5.0)), steps=[0, 1, 2, 0, 1])
    Logs.of(**columns(next_observations=np.array([[1.0], [2.0], [5.0], [5.0], [5.0]])))  # 2 of 3 are enough
    rounded = columns()["next_observations"].astype(np.float32) * (1 + 1e-6)
    assert len(Logs.of(**columns(next_observations=rounded))) == 5


def test_no_terminal_row_is_lost_without_next_observations():
    assert len(Logs.of(**columns(next_observations=None, terminated=[0] * 5))) == 3


def test_large_ids_are_told_apart():
    ids = [2**53, 2**53, 2**53 + 1, 2**53 + 1, 2**53 + 1]
    s = np.arange(5.0)[:, None]
    for kind in (list, np.array, torch.tensor, pd.Series):
        logs = Logs.of(**columns(observations=s, next_observations=s + 1, episodes=kind(ids)))
        assert logs.lengths.tolist() == [2, 3], kind


def test_a_bound_is_met_within_the_rounding_of_floats():
    high = np.float32(0.5)
    assert len(Logs.of(**columns(action_low=[0.0], action_high=[float(high) - 1e-7]))) == 5
