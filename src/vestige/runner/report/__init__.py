"""What people read: pages and documents made of Records. Nothing is computed here that Records do not hold."""

from vestige.runner.report.compare import compare
from vestige.runner.report.page import Written, page_of, report, write, write_site
from vestige.runner.report.reading import Group, gather, groups, pack, volumes
from vestige.runner.report.reproductions import reproductions
from vestige.runner.report.sections import lines_table

__all__ = [
    "Group",
    "Written",
    "compare",
    "gather",
    "groups",
    "lines_table",
    "pack",
    "page_of",
    "report",
    "reproductions",
    "volumes",
    "write",
    "write_site",
]
