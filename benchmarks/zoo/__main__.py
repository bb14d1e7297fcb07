"""`python -m benchmarks.zoo [--truth]`: the pairs with their truth; or compute that anew (a few CPU-minutes)."""

from __future__ import annotations

import argparse

from benchmarks.zoo import FAMILIES, ZOO, truth
from benchmarks.zoo.pair import KEYS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("--truth", action="store_true", help="compute truth.json anew")
    if parser.parse_args().truth:
        truth.write(ZOO)
        return
    print(f"{'pair':30s}{'family':12s}{'d':>4s}" + "".join(f"{key:>12s}" for key in KEYS) + "   largest s.e.")
    for name, pair in ZOO.items():
        cells = "".join(f"{value:12.5f}" for value in pair.truth().values())
        print(f"{name:30s}{pair.family:12s}{pair.d:4d}{cells}   {max(pair.standard_errors().values()):.1e}")
    print(f"{len(ZOO)} pairs in {len(FAMILIES)} families")


if __name__ == "__main__":
    main()
