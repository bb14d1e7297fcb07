"""Data sets by name, wherever they are; streams whose data goes away."""

from collections.abc import Callable

from vestige.data.dataset import DataSet, every_nth
from vestige.data.loading import fetch, listing, load
from vestige.data.own import as_dataset, from_arrays
from vestige.data.sources import SOURCES
from vestige.data.stream import Declared, Stream, Task, TaskInfo
from vestige.data.streams import blurred, continuous, domains, long, overlapping, permuted, split, two_task

# Every stream by its name.
STREAMS: dict[str, Callable[..., Stream]] = {
    make.__name__: make for make in (blurred, continuous, domains, long, overlapping, permuted, split, two_task)
}

__all__ = [
    "SOURCES",
    "STREAMS",
    "DataSet",
    "Declared",
    "Stream",
    "Task",
    "TaskInfo",
    "as_dataset",
    "blurred",
    "continuous",
    "domains",
    "every_nth",
    "fetch",
    "from_arrays",
    "listing",
    "load",
    "long",
    "overlapping",
    "permuted",
    "split",
    "two_task",
]
