"""A test of "no difference" between deleted rows and new ones, from moments alone."""

from vestige.vestiges.drift_test.dictionary import FAMILIES, Dictionary
from vestige.vestiges.drift_test.test import ColumnShift, DriftFound, DriftTest

__all__ = ["FAMILIES", "ColumnShift", "Dictionary", "DriftFound", "DriftTest"]
