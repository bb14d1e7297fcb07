"""What people read: documents made of Records. Nothing is computed here."""

from vestige.report.reproductions import lines_table, reproductions

__all__ = ["lines_table", "reproductions"]
