"""REPRODUCTIONS.md and its pages: every experiment whose Records are kept, measured beside published, with its verdict.

The index has a line for each experiment, those of one seed apart from those of several; a page for each paper has the
claims, the commands and the numbers. They read Records and compute nothing: lines and verdict are the experiment's own.
Each Record carries its version; those of the first edition were made before results had versions, and are called so.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from vestige.continual.record import Record
from vestige.core import InputError
from vestige.runner.claims import STANDS
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report.reading import Group, belonging, edition, gather, setting
from vestige.runner.report.sections import commands, left_out, lines_table

INDEX, PAGES = "REPRODUCTIONS.md", "docs/reproductions"
NOTED = {"preliminary": " (one seed of all or most runs)", "no verdict": " (too small to judge)"}
MISSES = ("partly", "not")  # verdicts that want grounds
MOST_COMMANDS = 3  # that made the Records of an experiment, the shortest of them; the others are counted


def reproductions(folder: str | Path) -> dict[str, str]:
    """The documents by where they belong, beside each other: the index, and a page for each paper."""
    records = gather([folder])
    found: list[Group] = []
    for name, experiment in EXPERIMENTS.items():
        settings = belonging(name, records)
        for words, runs in settings.items():
            more = f" ({words})" if len(settings) > 1 else ""
            found.append(Group(f"{name}: {experiment.item}{more}", tuple(runs), experiment))
    if not found:
        raise InputError(f"The folder '{folder}' must hold Records of experiments. Got none instead.")
    templates = Environment(
        loader=PackageLoader("vestige.runner.report"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    templates.filters |= {"anchor": anchor, "editions": standing, "left_out": left_out, "made": made}
    templates.filters |= {"finding": finding, "left_seed": left_seed, "paper": paper_of, "preset": preset_of}
    templates.globals |= {"folder": PAGES, "lines_table": lines_table}
    templates.filters |= {"grounds": grounds, "misses": misses}
    templates.tests["missed"] = missed
    papers = {paper: [g for g in found if paper_of(g) == paper] for paper in sorted(set(map(paper_of, found)))}
    several, one = ([g for g in found if (len(g.seeds) > 1) == many] for many in (True, False))
    index, page = templates.get_template("index.md"), templates.get_template("paper.md")
    return {INDEX: index.render(papers=papers, several=several, one=one, all=found)} | {
        f"{PAGES}/{paper}.md": page.render(paper=paper, about=about(own[0]), groups=own)
        for paper, own in papers.items()
    }


def paper_of(group: Group) -> str:
    """What stands before the first dash of an experiment's name: its paper."""
    return group.name.partition("-")[0]


def finding(groups: Sequence[Group]) -> str:
    """How the rows came out, in a sentence: those of several seeds by their verdict, those of one counted apart."""
    words = Counter[str](group.verdict.word for group in groups if group.verdict is not None)
    told = [f"{n} **{word}**{NOTED.get(word, '')}" for word in STANDS if (n := words[word])]
    both = " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))
    asked = [g.verdict.hangs_on for g in groups if g.verdict is not None and g.verdict.hangs_on is not None]
    stay = (
        f" The verdict of {asked.count(())} of the {len(asked)} with three seeds or more stays whichever is left out."
    )
    return f"{len(groups)} row{'s' * (len(groups) > 1)}: {both}.{stay * bool(asked)}"


def left_seed(group: Group) -> str:
    """What becomes of a verdict when one seed is left out: "the same", or without which it is another."""
    hangs_on = None if group.verdict is None else group.verdict.hangs_on
    if hangs_on is None:
        return "-"
    return f"hangs on seed{'s' * (len(hangs_on) > 1)} {_spans(hangs_on)}" if hangs_on else "the same"


def missed(group: Group) -> bool:
    """Whether some claim does not hold."""
    return group.verdict is not None and group.verdict.word in MISSES


def misses(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """What a miss rests on -> the rows of which it is said."""
    found: dict[str, list[Group]] = {}
    for group in filter(missed, groups):
        found.setdefault(grounds(group), []).append(group)
    return found


def grounds(group: Group) -> str:
    """What a miss rests on, as its experiment says."""
    return (group.experiment.grounds if group.experiment is not None else "") or "not known."


def standing(group: Group) -> str:
    """The editions of a group, and which runs it waits for."""
    waits = [] if group.experiment is None else group.experiment.waits(group.records)
    return ", ".join(filter(None, (editions(group.records), f"waits for {', '.join(waits)}" if waits else "")))


def about(group: Group) -> str:
    """What the package of an experiment says of itself, in a line."""
    package = sys.modules.get(type(group.experiment).__module__.rpartition(".")[0])
    return (package.__doc__ or "").partition("\n")[0] if package else ""


def preset_of(group: Group) -> str:
    """The settings of a group, without its edition."""
    said = {setting(r).removeprefix("preset ").replace(f", {edition(r)}", "") for r in group.records}
    return ", ".join(sorted(said - {""}))


def editions(records: Sequence[Record]) -> str:
    """The first edition apart; of the others every part whose version is not 1, each version once."""
    later = [r.version for r in records if not r.first_edition]
    raised = {f"{name} {number}" for version in later for name, number in version.items() if number != 1}
    said = [f"version {', '.join(sorted(raised)) or 1}"] if later else []
    return ", ".join([*said, *(["first edition"] if len(later) < len(records) else [])])


def made(records: Sequence[Record]) -> str:
    """Command, preset, seeds and code of the Records."""
    ran = [f"`{command}`" for command in sorted(commands(records), key=len)]
    if len(ran) > MOST_COMMANDS:
        ran[MOST_COMMANDS:] = [f"and {len(ran) - MOST_COMMANDS} more for parts of it"]
    commits = sorted({r.versions["commit"] for r in records if "commit" in r.versions})
    facts = [
        *([f"Run by {', '.join(ran)}"] if ran else []),
        f"{len(records)} Records, seeds {_spans(sorted({r.seed for r in records}))}",
        editions(records),
        *([f"commit {', '.join(commits)}"] if commits else []),
    ]
    return f"{'; '.join(facts)}."


def anchor(heading: str) -> str:
    """What GitHub makes of a heading: lower case, punctuation dropped, spaces as dashes."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _spans(seeds: Sequence[int]) -> str:
    """0, 1, 2, 5 as '0-2, 5'."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and seed == spans[-1][-1] + 1:
            spans[-1].append(seed)
        else:
            spans.append([seed])
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
