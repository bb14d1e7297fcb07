"""`python -m benchmarks.zoo`: the pairs and drifts with their truth. `--truth [PREFIX]`: compute it anew."""

from __future__ import annotations

import argparse

from benchmarks.zoo import FAMILIES, ZOO, second, truth, unseen
from benchmarks.zoo.drifts import DRIFTS
from benchmarks.zoo.pair import KEYS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument(
        "--truth",
        nargs="?",
        const="",
        metavar="PREFIX",
        help="compute truth.json anew (some CPU-minutes), for the names that begin so and keep the others",
    )
    prefix = parser.parse_args().truth
    every = ZOO | {step.name: step for drift in DRIFTS.values() for step in drift.steps}
    for kept in (unseen, second):
        every |= kept.PAIRS | {step.name: step for drift in kept.DRIFTS.values() for step in drift.steps}
    if prefix is not None:
        if not any(name.startswith(prefix) for name in every):
            parser.error(f"no pair and no drift begins with {prefix!r}")
        truth.write(every, prefix)
        return
    print(f"{'pair':42s}{'family':14s}{'d':>4s}" + "".join(f"{key:>12s}" for key in KEYS) + "   largest s.e.")
    for name, pair in every.items():
        cells = "".join(f"{value:12.5f}" for value in pair.truth().values())
        print(f"{name:42s}{pair.family:14s}{pair.d:4d}{cells}   {max(pair.standard_errors().values()):.1e}")
    print(f"{len(ZOO)} pairs in {len(FAMILIES)} families, {len(DRIFTS)} drifts (NAME@step)")
    print(f"unseen: {len(unseen.PAIRS)} pairs, {len(unseen.DRIFTS)} drifts")
    print(f"second: {len(second.PAIRS)} pairs, {len(second.DRIFTS)} drifts")


if __name__ == "__main__":
    main()
