"""`python -m benchmarks truth`: tables of stored results; with options, the runs that make them."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

from benchmarks.environments import ONE_THREAD
from benchmarks.truth.results import EDITIONS, SOURCES


def shard(text: str) -> tuple[int, int]:
    """K/N with 1 <= K <= N."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    k, n = map(int, found.groups()) if found else (0, 0)
    if not 1 <= k <= n:
        raise argparse.ArgumentTypeError(f"a shard is K/N with K from 1 to N, as in 1/2; got {text}")
    return k, n


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks truth", description=__doc__)
    parser.add_argument("--run", action="store_true", help="print the CPU plan and measure what is missing")
    parser.add_argument("--only", choices=SOURCES, help="this source alone")
    parser.add_argument("--shard", type=shard, metavar="K/N", help="every N-th cell from the K-th on, in a file apart")
    parser.add_argument("--edition", choices=EDITIONS, default="after", help="whose results are made: after by default")
    parser.add_argument("--merge", action="store_true", help="make one file of those of the shards")
    parser.add_argument("--judge", action="store_true", help="put ends and verdicts of today's rule on stored fits")
    parser.add_argument("--choose", action="store_true", help="constants of the intervals, each family left out")
    parser.add_argument("--adversary", type=int, metavar="N", help="try N transformed pairs in all")
    parser.add_argument("--seed", type=int, default=0, help="of the adversary")
    parser.add_argument("--markdown", action="store_true", help="print the main table in Markdown")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 where a plan is above the limit."""
    arguments = _arguments(given)
    os.environ.update(ONE_THREAD)  # for what is imported from here on
    from benchmarks.truth import adversary, cells, choose, judge, results, run, tables

    if arguments.merge:
        for source in [arguments.only] if arguments.only else [*SOURCES, adversary.SOURCE]:
            print(f"{source}-{arguments.edition}: {results.merge(source, arguments.edition)} rows")
        return 0
    if arguments.judge:
        for source in [arguments.only] if arguments.only else [*SOURCES, adversary.SOURCE]:
            done, total = judge.judge_all(source, "after")
            print(f"{source}: {done} of {total} rows by the rule of today; --run measures the others")
        return 0
    if arguments.choose:
        tables.print_choice(choose.left_out(choose.cases(arguments.edition)))
        return 0
    if arguments.adversary is not None:
        adversary.search(arguments.adversary, arguments.edition, seed=arguments.seed)
        return 0
    if not arguments.run:
        tables.print_markdown() if arguments.markdown else tables.print_all()
        return 0
    wanted = [cell for cell in cells.plan(arguments.edition) if arguments.only in (None, cell.source)]
    rule = cells.rule() if arguments.edition == "after" else None
    todo = run.missing(run.share(wanted, arguments.shard), arguments.edition, cells.version(), rule=rule)
    hours = run.print_plan(todo, arguments.edition)
    if hours > cells.MOST_HOURS:
        print(f"That is more than {cells.MOST_HOURS:g} CPU-hours; take a part of it by --only.", file=sys.stderr)
        return 1
    if not any(cell.source == "mi" for cell in wanted) and arguments.only in (None, "mi"):
        print("benchmark-mi: no samples are here; `python -m benchmarks.mi --data` makes them.", file=sys.stderr)
    run.run(wanted, arguments.edition, shard=arguments.shard, rule=rule)
    return 0


if __name__ == "__main__":
    sys.exit(main())
