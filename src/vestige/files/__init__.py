"""Users' files: arrays, tables and images as samples, with a report of what was done to each column."""

from vestige.files.address import FORMATS
from vestige.files.chunks import chunks
from vestige.files.read import Samples, read, read_pair
from vestige.files.tables import Column, ColumnReport, encode

__all__ = ["FORMATS", "Column", "ColumnReport", "Samples", "chunks", "encode", "read", "read_pair"]
