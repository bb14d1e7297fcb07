"""What people read: pages and documents made of Records. Nothing is computed here that Records do not hold."""

from vestige.report.compare import compare
from vestige.report.files import Written, write
from vestige.report.page import report
from vestige.report.published import lines_table
from vestige.report.reading import gather
from vestige.report.reproductions import reproductions

__all__ = ["Written", "compare", "gather", "lines_table", "report", "reproductions", "write"]
