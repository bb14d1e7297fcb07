"""`vestige demo`: the main jobs on data that ships with the package."""
