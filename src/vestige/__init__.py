"""Vestige judges models that keep learning after their data is gone."""

from vestige.version import __version__

__all__ = ["__version__"]
