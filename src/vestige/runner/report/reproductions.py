"""REPRODUCTIONS.md and its pages: every experiment whose Records are kept, measured beside published, with its verdict.

The index has a line for each experiment, those of one seed apart from those of several; a page for each paper has the
claims, the commands and the numbers. They read Records and compute nothing: lines and verdict are the experiment's own.
Each Record carries its version; those of the first edition were made before results had versions, and are called so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vestige.continual.record import Record
from vestige.core import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report.reading import Group, belonging, edition, gather, setting
from vestige.runner.report.sections import commands, left_out, lines_table

INDEX, PAGES = "REPRODUCTIONS.md", "docs/reproductions"
HEAD = """# Reproductions

Written by `vestige report --reproductions`, from the Records in `reproductions/`. A verdict follows from the claims of
the experiment, which were written before the run and stand on the page of its paper, with all numbers. A miss stays
visible. *First edition*: run before results had versions; what it says was true of the code of its day.
"""
SEVERAL = "Numbers have a standard error over their seeds; a line that only one seed has run has none."
ONE = "Nothing is known of how far another seed would be: read these as examples, not as findings."
PAGE = "*se* is the standard error over seeds; a verdict follows from the rule that is printed with it."

Found = Mapping[tuple[str, str], Sequence[Record]]  # (experiment, words on the setting where there are several)


def section(name: str, records: Sequence[Record], words: str = "") -> str:
    """One experiment; `words` are the setting, where there are several."""
    experiment = EXPERIMENTS[name]
    verdict = experiment.verdict(records)
    cut = left_out(Group(name, tuple(records), experiment))
    parts = [
        f"## {title(name, words)}",
        experiment.what,
        f"**{verdict.word}.** {verdict.why}",
        f"Rule: {experiment.rule}",
        made(records),
        f"Against the published setting this leaves out: {cut}" if cut else "",
        lines_table(experiment, records).markdown(),
    ]
    return "\n\n".join(part for part in parts if part)


def made(records: Sequence[Record]) -> str:
    """Command, preset, seeds and code of the Records."""
    ran = sorted(f"`{command}`" for command in commands(records))
    commits = sorted({r.versions["commit"] for r in records if "commit" in r.versions})
    facts = [
        *([f"Run by {', '.join(ran)}"] if ran else []),
        f"{len(records)} Records, seeds {_spans(sorted({r.seed for r in records}))}",
        ", ".join(sorted({edition(record) for record in records})),
        *([f"commit {', '.join(commits)}"] if commits else []),
    ]
    return f"{'; '.join(facts)}."


def index(found: Found) -> str:
    """A line for each experiment, with a link to its section; those of one seed for themselves."""
    parts = [HEAD, "Pages: " + ", ".join(f"[{paper}]({PAGES}/{paper}.md)" for paper in _papers(found)) + ".\n"]
    single = {key for key, records in found.items() if len({record.seed for record in records}) == 1}
    for heading, words, keys in (
        ("Several seeds", SEVERAL, found.keys() - single),
        ("One seed", ONE, single),
    ):
        if keys:
            parts.append(f"## {heading}\n\n{words}\n\n{summary({key: found[key] for key in found if key in keys})}")
    return "\n".join(parts)


def summary(found: Found) -> str:
    """A line for each experiment."""
    lines = ["| experiment | item | verdict | preset | seeds | edition |", "| --- | --- | --- | --- | ---: | --- |"]
    for (name, words), records in found.items():
        experiment = EXPERIMENTS[name]
        link = f"[{name}]({PAGES}/{paper_of(name)}.md#{anchor(title(name, words))})"
        said = {setting(record).removeprefix("preset ").replace(f", {edition(record)}", "") for record in records}
        preset, editions = ", ".join(sorted(said - {""})), sorted({edition(record) for record in records})
        seeds, word = len({record.seed for record in records}), experiment.verdict(records).word
        lines.append(f"| {link} | {experiment.item} | **{word}** | {preset} | {seeds} | {', '.join(editions)} |")
    return "\n".join(lines) + "\n"


def page(paper: str, found: Found) -> str:
    """Every experiment of a paper."""
    own = [(name, words, records) for (name, words), records in found.items() if paper_of(name) == paper]
    package = sys.modules.get(type(EXPERIMENTS[own[0][0]]).__module__.rpartition(".")[0])
    about = (package.__doc__ or "").partition("\n")[0] if package else ""
    intro = f"{about}\n\n{PAGE}" if about else PAGE
    return "\n\n".join([f"# Reproductions: {paper}", intro, *(section(n, records, w) for n, w, records in own)]) + "\n"


def paper_of(name: str) -> str:
    """What stands before the first dash of an experiment's name: its paper."""
    return name.partition("-")[0]


def title(name: str, words: str = "") -> str:
    """The heading of an experiment, or of one setting of it."""
    return f"{name}: {EXPERIMENTS[name].item}" + (f" ({words})" if words else "")


def anchor(heading: str) -> str:
    """What GitHub makes of a heading: lower case, punctuation dropped, spaces as dashes."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def reproductions(folder: str | Path) -> dict[str, str]:
    """The documents by where they belong, beside each other: the index, and a page for each paper."""
    records = gather([folder])
    found: dict[tuple[str, str], list[Record]] = {}
    for name in EXPERIMENTS:
        settings = belonging(name, records)
        found |= {(name, words if len(settings) > 1 else ""): runs for words, runs in settings.items()}
    if not found:
        raise InputError(f"The folder '{folder}' must hold Records of experiments. Got none instead.")
    return {INDEX: index(found)} | {f"{PAGES}/{paper}.md": page(paper, found) for paper in _papers(found)}


def _papers(found: Found) -> list[str]:
    return sorted({paper_of(name) for name, _ in found})


def _spans(seeds: Sequence[int]) -> str:
    """0, 1, 2, 5 as '0-2, 5'."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and seed == spans[-1][-1] + 1:
            spans[-1].append(seed)
        else:
            spans.append([seed])
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
