"""Data sets that a test needs and that do not ship with the package."""

import os
from pathlib import Path

import pytest


def data_set(name):
    """Skip the test unless NAME.npz is in VESTIGE_DATA."""
    if not (Path(os.environ.get("VESTIGE_DATA", "/nonexistent")) / f"{name}.npz").exists():
        pytest.skip(f"{name}.npz is not in VESTIGE_DATA")
