"""The version of the package: read by the build, stamped into every Record."""

__version__ = "0.2.0.dev0"
