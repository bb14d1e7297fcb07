"""`python -m benchmarks privacy`: the AUC of attacks on vestiges of public data, from stored results.

Members, fresh rows and the attacker's reference rows are disjoint draws of one data set; members are redrawn. Attacks
are those of `vestige.vestiges.attack`; 0.5 is guessing. "last row" is how often somebody who knows all other rows tells
the last one from a fresh row.

    python -m benchmarks privacy                     # tables of what is stored
    python -m benchmarks privacy --markdown
    python -m benchmarks privacy --run               # measure what is missing, cheapest first
    python -m benchmarks privacy --run --only mnist --sizes 300 1000
    python -m benchmarks privacy --leaves            # rows a leaf: the AUC of the density beside the JS of its draws
    python -m benchmarks privacy --write             # into the package, for `vestige show`

Results are kept in benchmarks/results/privacy, one file a data set, and a run goes on where the last one stopped. What
was measured with an older `version` of a vestige is measured again. What is measured with an
epsilon is in `epsilon`, and printed here as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.environments import ONE_THREAD, ROOT
from benchmarks.privacy.populations import POPULATIONS

FOLDER = ROOT / "benchmarks" / "results" / "privacy"
WRITTEN = ROOT / "src" / "vestige" / "vestiges" / "measured_attacks.json"
SIZES = (300, 1000, 10_000)
# How often members are drawn anew: an interval of about +-.01 at 10 000 rows.
REFERENCES = {300: 8, 1000: 4, 10_000: 2}
# CPU seconds of one vestige and its attacks, about, for the plan.
SECONDS = {
    "covertype": (10, 15, 45),
    "electricity": (3, 4, 9),
    "mixed": (5, 7, 17),
    "mnist": (12, 20, 65),
    "gaussian": (4, 6, 14),
}
LEAVES = (50, 100, 200, 400, 800)
LEAF_TABLES, LEAF_ROWS, LEAF_FRESH = ("covertype", "electricity", "mixed"), 10_000, 4000
ATTACKS = ("density", "map", "moments", "last row")
TARGET = 0.60  # density and map, at 10 000 rows


def version() -> int:
    """Of what a vestige keeps."""
    from vestige.vestiges import Vestige

    return Vestige.version


def stored(name: str) -> dict[str, Any]:
    """Finished cells of a data set by "n/reference", and of the sweep over leaves by "leaves/rows a leaf"."""
    file = FOLDER / f"attacks-{name}.json"
    return json.loads(file.read_text()) if file.exists() else {"version": 0, "cells": {}}


def _store(name: str, cells: dict[str, Any]) -> None:
    from vestige.store.objects import write_bytes

    lines = ",\n".join(f'"{key}":{json.dumps(cells[key], separators=(",", ":"))}' for key in sorted(cells))
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_bytes(FOLDER / f"attacks-{name}.json", f'{{"version":{version()},"cells":{{\n{lines}\n}}}}\n'.encode())


def _current(name: str) -> dict[str, Any]:
    found = stored(name)
    return found["cells"] if found["version"] == version() else {}


def attacked(name: str, n: int, reference: int) -> dict[str, Any]:
    """(value, standard error) of every attack on one vestige; None where there is nothing to attack."""
    from vestige.vestiges import attack
    from vestige.vestiges import reference as draws

    draws.ERRORS_BY = draws.fast()  # how well the own error is known changes nothing that is attacked
    found = attack.once(POPULATIONS[name][1](), n, seed=reference)
    return {key: [round(one.value, 4), round(one.std_error, 4)] if one.known else None for key, one in found.items()}


def swept(name: str, rows_a_leaf: int) -> dict[str, Any]:
    """The AUC of the density attack on trees with leaves of so many rows, and the JS of their draws to fresh rows."""
    import torch

    from vestige import densities
    from vestige.ratios.cross_fit import held_out
    from vestige.ratios.divergences import learnt
    from vestige.vestiges import attack
    from vestige.vestiges.batches import batches, survey
    from vestige.vestiges.frame import Frame
    from vestige.vestiges.reference import fast, seen_of_cells

    rows = POPULATIONS[name][1]()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(rows_a_leaf))
    ends = (0, LEAF_ROWS, LEAF_ROWS + LEAF_FRESH, 3 * LEAF_ROWS)
    members, fresh, other = (attack.picked(rows, order[a:b]) for a, b in itertools.pairwise(ends))
    frame = Frame.of(survey(batches(members)))
    cells = [frame.cells(x).cells for x in (members, fresh, other)]
    density = densities.build("trees", rows_a_leaf=rows_a_leaf).fit(cells[0], frame.kinds)
    score = attack.density_scores([density], [1.0], cells[2], frame.kinds)
    found = attack.auc(score(cells[0][:LEAF_FRESH]), score(cells[1]))
    drawn = density.draw(LEAF_FRESH, seed=1)
    seen = [seen_of_cells(frame, x) for x in (cells[1], drawn)]
    js = learnt(["js"], *held_out(*seen, estimator=fast()).sides(), None)["js"]
    pairs = {key: [round(one.value, 4), round(one.std_error, 4)] for key, one in (("auc", found), ("js", js))}
    return pairs | {"leaves": max(density.report_["leaves"])}


def _missing(names: Sequence[str], sizes: Sequence[int], references: int | None) -> list[tuple[float, str, int, int]]:
    """(seconds, data set, n, reference) of what is not there: first references first, the cheapest first."""
    cells = [
        (SECONDS[name][SIZES.index(n)], name, n, r)
        for name in names
        for n in sizes
        for r in range(references or REFERENCES[n])
        if f"{n}/{r}" not in _current(name)
    ]
    return sorted(cells, key=lambda cell: (cell[3] > 0, cell[0]))


def run(names: Sequence[str], sizes: Sequence[int], references: int | None) -> None:
    """Measure what is missing; the plan is printed first."""
    missing = _missing(names, sizes, references)
    total = sum(cell[0] for cell in missing)
    print(f"plan: {len(missing)} vestiges, about {total / 60:.1f} CPU-minutes on one core", file=sys.stderr, flush=True)
    for _, name, n, reference in missing:
        start = time.process_time()
        found = attacked(name, n, reference)
        _store(name, _current(name) | {f"{n}/{reference}": found})
        told = f"{name} n = {n}, {reference}: {time.process_time() - start:.1f} s"
        print(told, file=sys.stderr, flush=True)


def run_leaves(names: Sequence[str]) -> None:
    """The sweep over leaves, where it is missing."""
    missing = [(name, leaf) for name in names for leaf in LEAVES if f"leaves/{leaf}" not in _current(name)]
    print(
        f"plan: {len(missing)} fits, about {len(missing) / 3:.1f} CPU-minutes on one core", file=sys.stderr, flush=True
    )
    for name, leaf in missing:
        _store(name, _current(name) | {f"leaves/{leaf}": swept(name, leaf)})


def together(name: str, n: int, attack: str) -> Any:
    """The mean over references, as an Estimate; None where nothing is stored."""
    from vestige.core import Estimate
    from vestige.vestiges import attack as attacks

    pairs = [cell[attack] for key, cell in stored(name)["cells"].items() if key.startswith(f"{n}/")]
    known = [Estimate.normal(*pair, name=attack) for pair in pairs if pair is not None]
    return attacks.together(known) if known else None


def figures() -> dict[str, Any]:
    """What `vestige show` prints: by kind of data, n and attack the AUC, of several data sets the largest."""
    kinds: dict[str, Any] = {}
    for name, (kind, _) in POPULATIONS.items():
        for n in SIZES:
            for attack in ATTACKS:
                one = together(name, n, attack)
                if one is None:
                    continue
                held = kinds.setdefault(kind, {}).setdefault(str(n), {})
                if attack not in held or one.value > held[attack][0]:
                    held[attack] = [round(one.value, 3), round(one.low, 3), round(one.high, 3), name]
    return kinds


def document() -> str:
    """The file of the package."""
    versions = {name: stored(name)["version"] for name in POPULATIONS}
    return json.dumps({"version": max(versions.values()), "kinds": figures()}, indent=1) + "\n"


def attack_rows() -> Iterator[list[str]]:
    """A data set and n a row."""
    for name, (kind, _) in POPULATIONS.items():
        for n in SIZES:
            found = [together(name, n, attack) for attack in ATTACKS]
            count = sum(key.startswith(f"{n}/") for key in stored(name)["cells"])
            if count:
                yield [name, kind, str(n), str(count), *(_told(one) for one in found)]


def leaf_rows() -> Iterator[list[str]]:
    """A table and size of leaves a row."""
    for name in LEAF_TABLES:
        for leaf in LEAVES:
            cell = stored(name)["cells"].get(f"leaves/{leaf}")
            if cell:
                (auc, error), (js, js_error) = cell["auc"], cell["js"]
                yield [
                    name,
                    str(leaf),
                    str(cell["leaves"]),
                    f"{auc:.3f} ± {1.96 * error:.3f}",
                    f"{js:.4f} ± {1.96 * js_error:.4f}",
                ]


def _told(one: Any) -> str:
    return "-" if one is None else f"{one.value:.3f} ± {1.96 * one.std_error:.3f}"


HEADS = {
    "AUC of attacks on membership": ("data", "kind", "n", "references", *ATTACKS),
    "rows a leaf, at 10 000 rows": (
        "data",
        "rows a leaf, at least",
        "leaves, at most",
        "AUC of the density",
        "JS of its draws",
    ),
}


def _print(markdown: bool) -> None:
    for (title, heads), rows in zip(HEADS.items(), (list(attack_rows()), list(leaf_rows())), strict=True):
        if markdown:
            print(f"{title}\n\n| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
            print("\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n")
            continue
        from rich.console import Console
        from rich.table import Table as Printed

        table = Printed(*heads, title=title)
        for row in rows:
            table.add_row(*row)
        Console(width=160).print(table)
    print(f"density and map at most {TARGET:.2f} at 10 000 rows: {_verdict()}")


def _verdict() -> str:
    found = {name: [together(name, 10_000, attack) for attack in ATTACKS[:2]] for name in POPULATIONS}
    unknown = [name for name, pair in found.items() if pair == [None, None]]
    above = [name for name, pair in found.items() if any(one is not None and one.value > TARGET for one in pair)]
    told = f"not met by {', '.join(above)}" if above else "met"
    return f"{told}; not measured: {', '.join(unknown)}" if unknown else told


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks privacy", description=__doc__)
    parser.add_argument("--run", action="store_true", help="measure what is missing")
    parser.add_argument("--leaves", action="store_true", help="measure what is missing of the sweep over leaves")
    parser.add_argument("--only", action="append", choices=POPULATIONS, help="this data set alone; may be repeated")
    parser.add_argument("--sizes", type=int, nargs="+", choices=SIZES, default=SIZES, help="rows that are kept")
    parser.add_argument("--references", type=int, help="how often members are drawn anew")
    parser.add_argument("--write", action="store_true", help="write the figures into the package")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    arguments = parser.parse_args(given)
    os.environ.update(ONE_THREAD)  # for what is imported from here on
    if arguments.run:
        run(arguments.only or list(POPULATIONS), arguments.sizes, arguments.references)
    if arguments.leaves:
        run_leaves([name for name in arguments.only or LEAF_TABLES if name in LEAF_TABLES])
    if arguments.write:
        Path(WRITTEN).write_text(document())
    if arguments.run or arguments.leaves or arguments.write:
        return 0
    from benchmarks.privacy import epsilon

    _print(arguments.markdown)
    return epsilon.main(["--markdown"] if arguments.markdown else [])


if __name__ == "__main__":
    sys.exit(main())
