"""Logs to a file and back, in every format; and files that are refused."""

import numpy as np
import pandas as pd
import pytest
import torch

from vestige.core.errors import InputError
from vestige.policy import Logs


@pytest.fixture
def logs():
    g = torch.Generator().manual_seed(0)
    s, a = torch.randn(13, 2, generator=g, dtype=torch.float64), torch.rand(12, 3, generator=g, dtype=torch.float64)
    end = torch.arange(12) % 4 == 3
    bounds = {"action_low": torch.zeros(3), "action_high": torch.ones(3)}
    return Logs.of(s[:-1], a, s[:-1, 0], s[1:], torch.arange(12) // 4, terminated=end, log_probs=a[:, 0], **bounds)


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_what_is_written_is_read(logs, tmp_path, ending):
    read = Logs.read(logs.write(tmp_path / f"logs.{ending}"))
    for name in ("observations", "actions", "rewards", "next_observations", "episodes", "terminated", "log_probs"):
        assert torch.equal(getattr(read, name), getattr(logs, name)), name
    if ending == "npz":
        assert read.action_high.tolist() == [1, 1, 1]


def frame(**other):
    """A table of two episodes as somebody else may write it."""
    good = {
        "episode": ["b", "b", "b", "a", "a"],
        "observation_0": [0.0, 1, 2, 3, 4],
        "observation_1": [0.0, 1, 2, 3, 4],
        "action_0": [1, 0, 1, 0, 1],
        "reward": [1.0, 2, 3, 4, 5],
        "what else": list("vwxyz"),
    }
    return pd.DataFrame(good | other)


def test_a_table_from_elsewhere(tmp_path):
    frame().to_csv(tmp_path / "logs.csv", index=False)
    logs = Logs.read(tmp_path / "logs.csv")
    assert logs.episodes.tolist() == [0, 0, 1]
    assert logs.next_observations[:, 1].tolist() == [1, 2, 4]
    assert logs.log_probs is logs.terminated is None


def test_episodes_that_were_an_index_in_pandas_are_read(tmp_path):
    frame().set_index("episode").to_parquet(tmp_path / "logs.parquet")
    assert Logs.read(tmp_path / "logs.parquet").episodes.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda f: f.drop(columns="reward"),
            "The 'reward' of logs.csv must be a column of the table. Got only episode",
        ),
        (lambda f: f.drop(columns="episode"), "The 'episode' of logs.csv must be a column"),
        (lambda f: f.drop(columns="observation_0"), "The 'observation_0' of logs.csv must be a column"),
        (lambda f: f.assign(observation_999999999999=1), "The 'observation_2' of logs.csv must be a column"),
        (lambda f: f.assign(**{"observation_" + "9" * 5000: 1}), "The 'observation_2' of logs.csv must be a column"),
        (
            lambda f: f.assign(reward=[1, 2, "x", 4, 5]),
            "The 'reward' of logs.csv must be numbers. Got text such as '1'",
        ),
        (lambda f: f.assign(reward=[1, 2, None, 4, 5]), "The 'rewards' of logs.csv must be finite"),
    ],
)
def test_a_table_that_is_refused(tmp_path, wrong, sentence):
    wrong(frame()).to_csv(tmp_path / "logs.csv", index=False)
    with pytest.raises(InputError, match=sentence):
        Logs.read(tmp_path / "logs.csv")


def test_an_archive_that_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", observations=np.zeros((4, 1)), actions=np.zeros((4, 1)), episodes=[0, 0, 1, 1])
    with pytest.raises(InputError, match=r"The 'rewards' of .*a.npz must be a key of the file"):
        Logs.read(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", observations=np.array([{}]), allow_pickle=True)
    with pytest.raises(InputError, match=r"The 'observations' of .*b.npz cannot be read"):
        Logs.read(tmp_path / "b.npz")
    (tmp_path / "c.npy").write_bytes(b"x")
    with pytest.raises(InputError, match=r"must be logs that end in .npz, .parquet, .csv"):
        Logs.read(tmp_path / "c.npy")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_large_ids_and_steps_are_read_exactly(tmp_path, ending):
    """2**53 and 2**53 + 1 are one float."""
    one, other = 2**53, 2**53 + 1
    given = frame(episode=[other, other, other, one, one], step=[one, one + 1, one + 2, 5, 6])
    path = tmp_path / f"logs.{ending}"
    given.to_csv(path, index=False) if ending == "csv" else given.to_parquet(path)
    logs = Logs.read(path)
    assert logs.rewards.tolist() == [4, 1, 2]  # in the order of ids, the last row of each without a next one
    assert logs.lengths.tolist() == [1, 2]


def test_a_wrong_ending_says_which_logs_have(tmp_path):
    (tmp_path / "logs.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    for name, told in (("logs.txt", r"the ending '\.txt'"), ("folder", "a folder"), ("none.json", r"'\.json'")):
        with pytest.raises(InputError, match=rf"must be logs that end in \.npz, \.parquet, \.csv\. Got .*{told}"):
            Logs.read(tmp_path / name)
    with pytest.raises(InputError, match="must be there"):
        Logs.read(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="Got a folder"):
        Logs.read(tmp_path / "folder.csv")


def test_an_unknown_ending_writes_nothing(logs, tmp_path):
    with pytest.raises(InputError, match="ends in"):
        logs.write(tmp_path / "logs.pkl")
    assert not list(tmp_path.iterdir())
