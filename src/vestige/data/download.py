"""Canonical files in the user's cache: fetched by pooch, checked against the published checksum, drawn by rich.

A file appears in the cache only after its checksum held; a broken connection, a wrong checksum or Ctrl-C leaves
nothing behind, and a file damaged later is removed when it is next looked at.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pooch
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

from vestige.core import DataUnavailable
from vestige.data.source import Remote

CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30.0


def cache_folder() -> Path:
    """Where downloads are kept: VESTIGE_CACHE, or the cache folder that the system gives this user."""
    return Path(os.environ.get("VESTIGE_CACHE") or pooch.os_cache("vestige")).expanduser()


def cached(remote: Remote, folder: Path) -> Path | None:
    """The file of `remote` in `folder` if it is there and whole; a damaged one is removed."""
    path = folder / remote.file
    if not path.is_file():
        return None
    kind, _, digest = remote.checksum.partition(":")
    if pooch.file_hash(str(path), alg=kind) == digest:
        return path
    path.unlink(missing_ok=True)
    return None


def retrieve(remote: Remote, folder: Path, *, progress: bool) -> Path:
    """`remote` in `folder`, from its cache or from the first of its addresses that gives what the checksum promises."""
    have = cached(remote, folder)
    if have is not None:
        return have
    reasons = []
    for url in remote.urls:
        try:
            with _shown(remote, progress) as bar:
                fetcher = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK_BYTES, timeout=TIMEOUT_SECONDS)
                path = pooch.retrieve(url, remote.checksum, fname=remote.file, path=folder, downloader=fetcher)
        except (OSError, ValueError) as error:  # requests' errors are OSErrors; pooch's checksum error is a ValueError
            wrong = isinstance(error, ValueError) and "hash" in str(error)
            reasons.append(f"{url}: {'wrong checksum, refused' if wrong else _short(error)}")
        else:
            return Path(path)
    with suppress(OSError):  # pooch made the folder; it goes unless another file is in it
        folder.rmdir()
    raise DataUnavailable(f"{remote.file} could not be downloaded ({'; '.join(reasons)}).")


def _short(error: Exception) -> str:
    """A few words: the texts of requests run over several lines."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    return getattr(error, "strerror", None) or type(error).__name__


class _Bar:
    """What pooch asks of a progress bar, drawn by rich."""

    def __init__(self, drawn: Progress, remote: Remote) -> None:
        self._drawn, self._task = drawn, drawn.add_task(remote.file, total=remote.size)
        self.total = self._size = remote.size  # pooch sets `total` to what the server says, which may be nothing

    def update(self, n: int) -> None:
        self._drawn.advance(self._task, n)

    def reset(self) -> None:
        self._drawn.reset(self._task)

    def close(self) -> None:
        self._drawn.update(self._task, completed=self._size)


@contextmanager
def _shown(remote: Remote, progress: bool) -> Iterator[_Bar]:
    """A bar for pooch, drawn if `progress`; pooch's own lines would break it, so it says only warnings meanwhile."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    console = Console(stderr=True, quiet=not progress)
    try:
        with Progress(
            *Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn(), console=console
        ) as drawn:
            yield _Bar(drawn, remote)
    finally:
        logger.setLevel(level)
