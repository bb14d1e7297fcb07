"""Speed against peers and floors: `make bench`, or `python -m benchmarks [NAME ...] [--list] [--json]`.

To add a benchmark: write `benchmarks/NAME.py` with a function `rows() -> list[Row]`, and one line in
`benchmarks/__main__.py`. `timing.py` holds `race` and `Row`, `peers.py` the packages that we compare with. `mi.py`
(`python -m benchmarks.mi`) has tasks of others with a known mutual information, and their estimators on them.
"""
