"""A lock has one holder, whoever removed its file in between; without locks in the system nothing is held."""

import errno
import fcntl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from vestige import store


def test_the_second_is_turned_away_or_waits_and_the_file_goes(tmp_path):
    path, order = tmp_path / "deep" / "x.lock", []
    began = threading.Event()

    def second():
        began.set()
        with store.locked(path) as ours:
            order.append(("second", ours))

    with store.locked(path) as ours:
        assert ours
        with store.locked(path, wait=False) as theirs:
            assert not theirs
        assert path.exists()  # who was turned away has not removed it
        waiting = threading.Thread(target=second)
        waiting.start()
        began.wait()
        order.append("first")
    waiting.join()
    assert order == ["first", ("second", True)]
    assert not path.exists()


def test_no_two_hold_it_though_each_removes_the_file(tmp_path):
    inside, most = [], []

    def work(_):
        with store.locked(tmp_path / "x.lock"):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(400)))
    assert max(most) == 1


def test_an_error_inside_gives_it_back(tmp_path):
    with pytest.raises(KeyError), store.locked(tmp_path / "x.lock"):
        raise KeyError
    with store.locked(tmp_path / "x.lock", wait=False) as ours:
        assert ours


def test_where_there_are_no_locks_nothing_is_held_and_other_errors_are_told(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(code, "no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    code = errno.ENOLCK
    with store.locked(tmp_path / "x.lock") as ours:
        assert ours
    store.save(tmp_path / "x.json", "thing", {})
    code = errno.EIO
    with pytest.raises(OSError, match="no locks"), store.locked(tmp_path / "x.lock"):
        pass


def test_many_savers_of_one_path_leave_one_whole_pair(tmp_path):
    def save(i):
        store.save(tmp_path / "x.json", "thing", {"i": i}, {"w": torch.full((50,), float(i))})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(save, range(80)))
    fields, tensors = store.load(tmp_path / "x.json", "thing")
    assert tensors["w"].tolist() == [float(fields["i"])] * 50
    assert len(list(tmp_path.iterdir())) == 2
