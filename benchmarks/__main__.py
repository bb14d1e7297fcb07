"""`python -m benchmarks [NAME ...] [--list] [--json] [--here] [--store]`: the table of ratios, with targets and floors.

With `--store` each benchmark's rows are kept in `results/ratios.jsonl` as it finishes, with versions, machine and
command; `python -m benchmarks page` writes BENCHMARKS.md from them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys

from benchmarks import peers
from benchmarks.environments import ONE_THREAD

# Every benchmark: its module has a function `rows() -> list[Row]`.
BENCHMARKS = {
    "ratios": "benchmarks.ratios",
    "metrics": "benchmarks.metrics",
    "compare": "benchmarks.compare",
    "vestige": "benchmarks.vestige",
    "bootstrap": "benchmarks.bootstrap",
    "protocol": "benchmarks.protocol",
    "methods": "benchmarks.methods",
    "convolutions": "benchmarks.convolutions",
    "chain": "benchmarks.chain",
    "vcl": "benchmarks.vcl",
    "generators": "benchmarks.generators",
}
# Tables of stored results, with options of their own and without the peers' environment: a module with `main(options)`.
STORED = {
    "truth": "benchmarks.truth.__main__",
    "drift": "benchmarks.drift",
    "policy": "benchmarks.policy",
    "bandits": "benchmarks.bandits",
    "privacy": "benchmarks.privacy.__main__",
    "growth": "benchmarks.growth",
    "page": "benchmarks.page",
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"among {', '.join(BENCHMARKS)}; all when none is named. Alone, with options: {', '.join(STORED)}",
    )
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--store", action="store_true", help="keep the rows of each benchmark in results/ratios.jsonl")
    parser.add_argument("--here", action="store_true", help="run in this environment, with the peers that it has")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is named {', '.join(unknown)}; there are {', '.join([*BENCHMARKS, *STORED])}")
    return arguments


def _print(rows: list) -> None:
    from rich.console import Console
    from rich.table import Table

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    table = Table(title="CPU seconds on one thread, median of interleaved runs")
    for column in ("benchmark", "ours", "peer", "peer's", "ours/peer", "target", "floor", "ours/floor", "note"):
        table.add_column(
            column, justify="left" if column in ("benchmark", "peer", "note") else "right", overflow="fold"
        )
    for row in rows:
        colour = {True: "green", False: "red", None: ""}[row.met]
        ratio = number(row.ratio, ".4g")
        table.add_row(
            row.name,
            number(row.ours, ".4g"),
            row.peer_name,
            number(row.peer, ".4g"),
            f"[{colour}]{ratio}[/]" if colour else ratio,
            number(row.at_most, ".3g"),
            number(row.floor, ".4g"),
            number(row.over_floor, ".3g"),
            row.note,
        )
    console = Console()
    console = console if console.is_terminal else Console(width=200)
    console.print(table)


def main() -> int:
    """Exit code 0 when every target was met, 1 when one was missed."""
    if sys.argv[1:2] and sys.argv[1] in STORED:
        return importlib.import_module(STORED[sys.argv[1]]).main(sys.argv[2:])
    arguments = _arguments()
    names = arguments.names or list(BENCHMARKS)
    if arguments.list:
        print("\n".join([*BENCHMARKS, *STORED]))
        return 0
    if not arguments.here and not peers.ENVIRONMENT.inside():
        code = peers.run_inside(sys.argv[1:])
        if code is not None:
            return code
    os.environ.update(ONE_THREAD)  # for what is imported from here on

    rows = []
    for name in names:
        if importlib.util.find_spec(BENCHMARKS[name]) is None:
            print(f"{name}: not written yet", file=sys.stderr)
            continue
        print(f"{name} ...", file=sys.stderr)
        found = importlib.import_module(BENCHMARKS[name]).rows()
        rows += found
        if arguments.store:
            from benchmarks import page, stored  # which import torch, after the number of threads is set

            facts = {"benchmark": name} | stored.context(f"python -m benchmarks {name} --store")
            stored.add(page.RATIOS, [row.as_json() | facts for row in found], ("benchmark",))
    if arguments.json:
        print(json.dumps([row.as_json() for row in rows], indent=1))
    else:
        _print(rows)
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
