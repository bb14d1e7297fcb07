"""REPRODUCTIONS.md: every experiment whose Records are kept, measured beside published, with command and verdict.

It reads Records and computes nothing: lines and verdict are the experiment's own. Records stay valid when code changes
later; each carries the hash of the code that made it and, where it ran from a checkout, the commit, and the document
names them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from vestige.continual.record import Record
from vestige.core.errors import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report.published import left_out, lines_table
from vestige.runner.report.reading import Group, belonging, gather, setting

HEAD = """# Reproductions

Written by `vestige report --reproductions`, from the Records in `reproductions/`. *se* is the standard error over
seeds. A verdict follows from the rule that is printed with it. A miss stays visible.
"""


def section(name: str, records: Sequence[Record], words: str = "") -> str:
    """One experiment; `words` are the setting, where there are several."""
    experiment = EXPERIMENTS[name]
    verdict = experiment.verdict(records)
    cut = left_out(Group(name, tuple(records), experiment))
    parts = [
        f"## {title(name, words)}",
        (type(experiment).__doc__ or "").partition("\n")[0],
        f"**{verdict.word}.** {verdict.why}",
        f"Rule: {experiment.rule}",
        made(records),
        f"Against the published setting this leaves out: {cut}" if cut else "",
        lines_table(experiment, records).markdown(),
    ]
    return "\n\n".join(part for part in parts if part)


def made(records: Sequence[Record]) -> str:
    """Command, preset, seeds and code of the Records."""
    ran = sorted({f"`vestige {r.details['command']}`" for r in records if "command" in r.details})
    commits = sorted({r.versions["commit"] for r in records if "commit" in r.versions})
    facts = [
        *([f"Run by {', '.join(ran)}"] if ran else []),
        f"{len(records)} Records, seeds {_spans(sorted({r.seed for r in records}))}",
        f"version {', '.join(sorted({record.edition for record in records}))}",
        *([f"commit {', '.join(commits)}"] if commits else []),
    ]
    return f"{'; '.join(facts)}."


def summary(found: dict[tuple[str, str], list[Record]]) -> str:
    """A line for each experiment, with a link to its section."""
    lines = ["| experiment | item | verdict | preset | seeds |", "| --- | --- | --- | --- | ---: |"]
    for (name, words), records in found.items():
        experiment = EXPERIMENTS[name]
        presets = ", ".join(sorted({setting(record).removeprefix("preset ") for record in records} - {""}))
        seeds = len({record.seed for record in records})
        word = experiment.verdict(records).word
        lines.append(
            f"| [{name}](#{anchor(title(name, words))}) | {experiment.item} | **{word}** | {presets} | {seeds} |"
        )
    return "\n".join(lines) + "\n"


def title(name: str, words: str = "") -> str:
    """The heading of an experiment, or of one setting of it."""
    return f"{name}: {EXPERIMENTS[name].item}" + (f" ({words})" if words else "")


def anchor(heading: str) -> str:
    """What GitHub makes of a heading: lower case, punctuation dropped, spaces as dashes."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def reproductions(folder: str | Path) -> str:
    """The whole document, in the order in which experiments are listed."""
    records = gather([folder])
    found: dict[tuple[str, str], list[Record]] = {}
    for name in EXPERIMENTS:
        settings = belonging(name, records)
        found |= {(name, words if len(settings) > 1 else ""): runs for words, runs in settings.items()}
    if not found:
        raise InputError(f"The folder '{folder}' must hold Records of experiments. Got none instead.")
    return "\n".join([HEAD, summary(found), *(section(name, own, words) for (name, words), own in found.items())])


def _spans(seeds: Sequence[int]) -> str:
    """0, 1, 2, 5 as '0-2, 5'."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and seed == spans[-1][-1] + 1:
            spans[-1].append(seed)
        else:
            spans.append([seed])
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
