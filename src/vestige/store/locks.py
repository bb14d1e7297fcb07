"""Locks between processes, of this machine or of all that share a folder: they belong to the kernel (flock).

A lock goes when its process does, however that ends; the file that it was held on may stay behind, and does no harm.
Where the system or the file system has no such locks nothing is held, and processes must be kept apart by other means.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

NONE_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)  # what a system without says


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """True while the lock file at `path` is ours alone; where another has it, wait for that to end, or False at once.

    The file is removed at the end of the block.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _taken(handle, wait):
                yield False
                return
            if not _still(path, handle):  # who had it before has removed it, and the next may have made another
                continue
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)
            return
        finally:
            os.close(handle)  # which gives the lock back


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Blocks with the same folder run one after another; it needs no file."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.name != "posix":  # folders cannot be opened
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _taken(handle, wait=True)
        yield
    finally:
        os.close(handle)


def _taken(handle: int, wait: bool) -> bool:
    """Whether the lock on an open file is ours now; False where another has it and we do not wait."""
    try:
        import fcntl  # POSIX alone has it
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NONE_HERE:
            raise
    return True


def _still(path: Path, handle: int) -> bool:
    """Whether `path` still names the file that is open."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
