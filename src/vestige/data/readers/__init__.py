"""Users' files: arrays, tables and images as samples, with a report of what was done to each column."""

from vestige.data.readers.address import FORMATS
from vestige.data.readers.columns import Column, ColumnReport, encode
from vestige.data.readers.matrices import read_matrix
from vestige.data.readers.read import SampleFile, chunks, read, read_pair

__all__ = ["FORMATS", "Column", "ColumnReport", "SampleFile", "chunks", "encode", "read", "read_matrix", "read_pair"]
