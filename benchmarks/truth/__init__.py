"""Divergences, verdicts and weights beside the truth: `python -m benchmarks truth`, printed from stored results.

    python -m benchmarks truth                     # the tables
    python -m benchmarks truth --run               # the CPU plan, then every cell that is missing
    python -m benchmarks truth --run --only zoo --shard 1/2
    python -m benchmarks truth --merge             # the files of shards become one file a source
    python -m benchmarks truth --judge             # ends and verdicts of today's rule on stored fits
    python -m benchmarks truth --choose            # constants of the intervals, each family left out in turn
    python -m benchmarks truth --adversary 100     # so many tries to break an "ok" or a "good"
    python -m benchmarks truth --markdown          # the main table, for docs/numbers.md

`cells` says what is measured and measures it, `results` keeps it, `figures` counts, `tables` prints, `choose` chooses
constants without the family that they are reported on, `judge` judges stored fits anew, and `adversary` searches for
what breaks a promise. Editions are "before" and "after": results of two versions of the code, side by side.
"""
