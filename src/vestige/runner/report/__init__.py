"""What people read: pages and documents made of Records. Nothing is computed here that Records do not hold."""

from vestige.runner.report.compare import compare
from vestige.runner.report.page import page_of, report
from vestige.runner.report.published import lines_table
from vestige.runner.report.reading import Group, gather, groups, pack, volumes
from vestige.runner.report.reproductions import reproductions
from vestige.runner.report.writing import Site, Written, write, write_site

__all__ = [
    "Group",
    "Site",
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
