"""BENCHMARKS.md and its pictures, from stored results alone: `python -m benchmarks page`.

It reads `results/ratios.jsonl` (`python -m benchmarks --store`) and `results/growth.jsonl` (`python -m benchmarks
growth`), and computes nothing but ratios, counts and exponents. Each table says what made it: command, date, versions,
machine. What has not been run is named, and not left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import stored
from benchmarks.environments import ROOT
from benchmarks.growth import FILE as GROWTH
from benchmarks.growth import JOBS, REPEATS, SHORT, Slope, missing, slope
from vestige.store import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATIOS = stored.RESULTS / "ratios.jsonl"
PICTURES = "docs/benchmarks"
AXES = {"n": "rows", "d": "columns", "tasks": "tasks", "parameters": "parameters", "members": "members"}
MEGABYTE = 1e6
LEAST_ADDED = 1e6  # bytes below which what a call adds is within the noise of an allocator, and has no exponent

Lines = Sequence[dict[str, Any]]


def documents(ratios: Lines, growth: Lines, left: Sequence[str]) -> dict[str, bytes]:
    """The page and its pictures, by where they belong; `left` are benchmarks and axes that have not been run."""
    from vestige import show

    found = slopes(growth)
    drawn = {
        f"{PICTURES}/{axis}.svg": show.encode(picture(axis, growth, found), "svg")
        for axis in AXES
        if any(line["axis"] == axis for line in growth)
    }
    return {"BENCHMARKS.md": text(ratios, growth, found, left).encode()} | drawn


Slopes = Mapping[tuple[str, str], tuple[Slope, Slope | None]]


def slopes(growth: Lines) -> dict[tuple[str, str], tuple[Slope, Slope | None]]:
    """(job, axis) -> the exponents of time and of added memory, of axes that have three points or more."""
    found = {}
    for key, own in by(growth, "job", "axis").items():
        if len(own) < 3:
            continue
        sizes, added = [line["size"] for line in own], [line["added"] for line in own]
        memory = slope(sizes, added) if min(added) >= LEAST_ADDED else None
        found[key] = slope(sizes, [line["seconds"] for line in own]), memory
    return found


def by(lines: Lines, *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Lines that agree in these fields, by size where they have one."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in lines:
        found.setdefault(tuple(line[name] for name in names), []).append(line)
    return {key: sorted(own, key=lambda line: line.get("size", 0)) for key, own in found.items()}


def text(ratios: Lines, growth: Lines, found: Slopes, left: Sequence[str]) -> str:
    """The page."""
    lines = [
        "# Benchmarks",
        "",
        finding(ratios, found),
        "",
        "Written by `make bench` from `benchmarks/results/ratios.jsonl` and `benchmarks/results/growth.jsonl`; every "
        "number is a stored result, or a ratio or a fit of some. Times are CPU seconds on one thread. The speed of a "
        "machine drifts, so contenders take turns in one process and their ratio is what should be read.",
        "",
        "## Against peers and floors",
        "",
        "*Floor*: the products that no implementation of the same definition can avoid. *Target*: the most that ours / "
        "peer may be, written before the run.",
        "",
        *(ratio_table(ratios) if ratios else ["None is stored."]),
        "",
        "## Growth",
        "",
        "Four sizes of each axis; the others stay where they are. *Exponent*: b of seconds = a size^b by least squares "
        "on logarithms, with its standard error; *last* is the slope between the two largest sizes, where fixed costs "
        f"weigh least. Times are the least of {REPEATS} calls, or of as many as fit into {SHORT:g} s. *Peak* is all "
        "that the process held, libraries, data and what is timed beside included; *added* what the call held above "
        "what was there before it.",
        "",
        *(growth_tables(growth, found) if growth else ["None is stored."]),
    ]
    if left:
        lines += ["", "## Not run yet", "", *(f"- {what}" for what in left)]
    return "\n".join(lines) + "\n"


def finding(ratios: Lines, found: Slopes) -> str:
    """The page in a sentence or two."""
    judged = [line["met"] for line in ratios if line["met"] is not None]
    said = f"{sum(judged)} of {len(judged)} targets against peers are met" if judged else "No target has been measured"
    if not found:
        return f"**{said}.**"
    (job, axis), (steepest, _) = max(found.items(), key=lambda item: item[1][0].exponent)
    grows = f"the steepest growth of a main job is that of {job} with {AXES[axis]}, to the power {_power(steepest)}"
    return f"**{said}; {grows}.**"


def ratio_table(ratios: Lines) -> list[str]:
    """A row a comparison, then what made each."""
    out = []
    for (name,), own in by(ratios, "benchmark").items():
        rows = [
            (
                line["name"],
                _number(line["ours"]),
                _peer(line),
                _number(line["peer"]),
                _ratio(line),
                _number(line["at_most"]),
                _number(line["floor"]),
                _number(line["over_floor"]),
                line["note"],
            )
            for line in own
        ]
        columns = ("", "ours (s)", "peer", "peer's (s)", "ours / peer", "target", "floor (s)", "ours / floor", "note")
        out += [f"### {name}", "", *_table(columns, rows, words=(0, 2, 8)), "", *made(own), ""]
    return out[:-1]


def growth_tables(growth: Lines, found: Slopes) -> list[str]:
    """End-to-end jobs beside kernels, then a picture and a table for each axis."""
    rows = []
    for (job, axis), own in by(growth, "job", "axis").items():
        time, memory = found.get((job, axis), (None, None))
        last = own[-1]
        beside = f"{last['seconds'] / last['beside']:.3g}" if last["beside"] else "-"
        rows.append(
            (
                job,
                last["kind"],
                AXES[axis],
                ", ".join(_size(line["size"]) for line in own),
                ", ".join(_number(line["seconds"]) for line in own),
                "-" if time is None else _power(time),
                "-" if time is None else f"{time.last:.2f}",
                beside,
                f"{last['peak'] / MEGABYTE:.0f}",
                f"{last['added'] / MEGABYTE:.1f}",
                "-" if memory is None else _power(memory),
            )
        )
    columns = (
        "job", "kind", "axis", "sizes", "CPU s", "exponent", "last", "ours / beside", "peak (MB)", "added (MB)",
        "its exponent",
    )  # fmt: skip
    out = [*_table(columns, rows, words=(0, 1, 2, 3, 4)), ""]
    shown = [name for name in JOBS if any(line["job"] == name for line in growth)]
    out += ["Ratios and memory are those of the largest size. What the jobs are, and what is timed *beside* them:", ""]
    for name in shown:
        beside = f"; beside it {JOBS[name].beside}" if JOBS[name].beside else ""
        rest = ", ".join(f"{axis} = {_size(size)}" for axis, size in JOBS[name].base.items())
        out.append(f"- **{name}**: {JOBS[name].what}, at {rest}{beside}.")
    out.append("")
    for axis, word in AXES.items():
        if any(line["axis"] == axis for line in growth):
            out += [f"![CPU seconds and memory of each job against {word}]({PICTURES}/{axis}.svg)", ""]
    return [*out, *made(growth)]


def made(lines: Lines) -> list[str]:
    """Command, date, versions and machine, each combination once."""
    said = []
    for line in lines:
        versions = ", ".join(f"{name} {number}" for name, number in sorted(line["versions"].items()))
        words = f"Made by `{line['command']}` on {line['date']}, {line['machine']}: {versions}."
        if words not in said:
            said.append(words)
    return said


def picture(axis: str, growth: Lines, found: Slopes) -> Figure:
    """Time and added memory against one axis, both in powers of ten, with the fitted exponents in the legend."""
    from matplotlib.figure import Figure

    from vestige.show import style

    own = {job: lines for (job, at), lines in by(growth, "job", "axis").items() if at == axis}
    with style.settings():
        figure = Figure(figsize=(12.0, 4.2), layout="constrained")
        both = figure.subplots(1, 2)
        panels: tuple[tuple[str, str, Callable[[dict[str, Any]], float], int], ...] = (
            ("CPU time", "CPU seconds", lambda line: line["seconds"], 0),
            ("memory that the call adds", "MB", lambda line: line["added"] / MEGABYTE, 1),
        )
        for axes, (title, label, read, which) in zip(both, panels, strict=True):
            for i, job in enumerate(JOBS):
                lines = own.get(job, [])
                fit = found.get((job, axis), (None, None))[which]
                sizes, values = [line["size"] for line in lines], [read(line) for line in lines]
                if not lines or (which and (fit is None or min(values) <= 0)):
                    continue
                power = "" if fit is None else f", {axis}^{fit.exponent:.2f}"
                look = style.look(i)
                axes.plot(sizes, values, label=f"{job}{power}", **look | {"linestyle": ""})
                if fit is not None:
                    axes.plot(sizes, _line(sizes, values, fit.exponent), color=look["color"], linewidth=1.2)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            style.plain_labels(axes.yaxis)
            axes.set_xticks(_apart({line["size"] for lines in own.values() for line in lines}))
            axes.xaxis.set_major_formatter(lambda value, _: _size(value))
            axes.tick_params(axis="x", labelsize=8)
            axes.set_title(title, loc="left")
            axes.set_xlabel(AXES[axis])
            axes.set_ylabel(label)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
            else:
                axes.text(0.5, 0.5, "below 1 MB", ha="center", transform=axes.transAxes)
    return figure


def _apart(sizes: Iterable[float]) -> list[float]:
    """Those that are half as large again as the last before them: their names do not touch."""
    out: list[float] = []
    for size in sorted(sizes):
        if not out or size >= 1.5 * out[-1]:
            out.append(size)
    return out


def _line(sizes: Sequence[float], values: Sequence[float], exponent: float) -> list[float]:
    """The fitted line at the sizes: through the means of the logarithms."""
    x, y = sum(map(math.log, sizes)) / len(sizes), sum(map(math.log, values)) / len(values)
    return [math.exp(y + exponent * (math.log(size) - x)) for size in sizes]


def _power(found: Slope) -> str:
    return f"{found.exponent:.2f} ({found.error:.2f})"


def _peer(line: dict[str, Any]) -> str:
    version = line["versions"].get(line["peer_name"].partition(" ")[0])
    return f"{line['peer_name']} {version}" if version else line["peer_name"]


def _ratio(line: dict[str, Any]) -> str:
    said = _number(line["ratio"])
    return {True: f"{said} (met)", False: f"**{said} (missed)**", None: said}[line["met"]]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _size(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int]) -> list[str]:
    """A pipe table."""
    rule = ["---" if i in words else "---:" for i in range(len(columns))]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in (columns, rule, *rows)]


def not_run(ratios: Lines) -> list[str]:
    """Benchmarks without a stored row, and points of growth that are not stored."""
    from benchmarks.__main__ import BENCHMARKS

    there = {line["benchmark"] for line in ratios}
    out = [f"`python -m benchmarks {name} --store`" for name in BENCHMARKS if name not in there]
    return out + [
        f"growth of {job} with {AXES[axis]}: {', '.join(map(_size, sizes))}"
        for job, axis, sizes in missing(JOBS, GROWTH)
    ]


def main(options: Sequence[str]) -> int:
    """Write the page and its pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks page", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT, help="where BENCHMARKS.md goes; by default the checkout")
    given = parser.parse_args(options)
    ratios = stored.read(RATIOS)
    for where, content in documents(ratios, stored.read(GROWTH), not_run(ratios)).items():
        write_bytes(given.out / where, content)
        print(given.out / where)
    return 0
