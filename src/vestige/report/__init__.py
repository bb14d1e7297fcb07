"""What people read: pages and documents made of Records. Nothing is computed here that Records do not hold."""

from vestige.report.compare import compare
from vestige.report.files import Written, write
from vestige.report.page import page_of, report
from vestige.report.published import lines_table
from vestige.report.reading import Group, gather, groups, volumes
from vestige.report.reproductions import reproductions
from vestige.report.site import Site, write_site

__all__ = [
    "Group",
    "Site",
    "Written",
    "compare",
    "gather",
    "groups",
    "lines_table",
    "page_of",
    "report",
    "reproductions",
    "volumes",
    "write",
    "write_site",
]
