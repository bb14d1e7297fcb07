"""The report: one page from Records of experiments, of bare runs, or of both. It computes nothing they do not hold.

One group of runs makes a page whose sections are the questions people ask, under a conclusion in plain words; several
make a page with a section each, under a summary. A section with nothing to show is left out.

On disk it is one page with all that it shows as files, or several pages with an index:

    report/index.html        report/figures/NAME.{png,pdf,svg}        report/tables/NAME.{csv,tex,md}
    report/index.html        report/NAME.html        report/NAME/figures        report/NAME/tables

The files come from the very objects that the page shows; a coloured matrix gives a table and a picture. Names are made
of the section's number and the title's plain letters, whatever else a title holds.

Runs of several experiments get a short index, and beside it a page of its own for each: every page opens alone from
disk, and one page of everything would be too large to read or to send. Pages are drawn one at a time, so that a folder
of any size needs the memory of its largest experiment.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vestige import show as drawing
from vestige.continual.record import Record
from vestige.core import InputError
from vestige.runner.experiment import PRESETS, Line
from vestige.runner.report.matrices import better, curves, declared, final, heats, measured, plane, summary_table
from vestige.runner.report.reading import Arm, Group, arms, groups
from vestige.runner.report.sections import (
    audits,
    costs,
    figures,
    origin,
    published,
    ratios,
    samples,
    scalars,
    uncertainty,
)
from vestige.runner.unit import silent
from vestige.show import Heading, Heat, Link, Noted, Page, Part, Picture, Status, Table, quadrant
from vestige.store import write_bytes

FIGURES, TABLES = "figures", "tables"
KINDS = ("png", "pdf", "svg")
LONGEST_NAME = 60
INDEX = "index"
COLOURS: dict[str, Literal["good", "care", "bad", "plain"]] = {"reproduced": "good", "partly": "care", "not": "bad"}


def opened(title: str, said: tuple[str, str], status: str = "runs") -> Page:
    """A page that begins with how it stands and its finding in a sentence; the rest of what is `said` stands below."""
    return Page(title, said[1], status=Status(COLOURS.get(status, "plain"), status), answer=said[0])


def conclusion(group: Group) -> tuple[str, str]:
    """The finding in one sentence, and what else is to be said of it."""
    if (verdict := group.verdict) is not None:
        return verdict.sentence(item(group)), verdict.why
    return _parted(_measured(group))


def _parted(said: str) -> tuple[str, str]:
    """The first sentence, and the rest."""
    answer, dot, rest = said.partition(". ")
    return (f"{answer}.", rest) if dot else (answer, "")


def _measured(group: Group) -> str:
    """What bare runs come to, in a sentence or two."""
    found = [(arm, final(arm, arm.first.head)) for arm in declared(arms(group.records))]
    known = [(arm, lines) for arm, lines in found if "average" in lines]
    if not known:
        return f"{_count(len(group.records), 'run')} without a matrix over tasks."
    return _alone(*known[0]) if len(known) == 1 else _ranked(known)


def overall(found: Sequence[Group]) -> str:
    """How many experiments came out."""
    verdicts = Counter[str](group.verdict.word for group in found if group.verdict is not None)
    listed = ", ".join(f"{n} {word}" for word, n in verdicts.most_common())
    parts = [f"{_count(verdicts.total(), 'experiment')}: {listed}."] if verdicts else []
    bare = sum(group.experiment is None for group in found)
    return " ".join([*parts, *([f"{_count(bare, 'group')} of runs without a published counterpart."] if bare else [])])


def tally(found: Sequence[Group]) -> str:
    """How several experiments stand in a few words: their verdict if all have one, else how many are reproduced."""
    words = [group.verdict.word for group in found if group.verdict is not None]
    if len(set(words)) <= 1:
        return next(iter(words), "runs")
    return f"{words.count('reproduced')} of {len(words)} reproduced"


def summary(found: Sequence[Group]) -> Table:
    """One line a group."""
    rows = [(group.name, item(group), word(group), len(group.records)) for group in found]
    return Table("What came out", ("runs", "item", "verdict", "Records"), rows)


def item(group: Group) -> str:
    """The table or figure that a group is about."""
    return "" if group.experiment is None else group.experiment.item


def word(group: Group) -> str:
    """The verdict, a dash where nothing was published."""
    return "-" if group.verdict is None else group.verdict.word


def status(group: Group) -> str:
    """The verdict, or that these are runs."""
    return "runs" if group.verdict is None else group.verdict.word


def _alone(arm: Arm, lines: dict[str, Line]) -> str:
    what, n = measured(arm.first), len(arm.first.R)
    said = f"After {_count(n, 'task')}, {arm.label} has an average {what} of {_value(arm, lines['average'])}."
    lost, lacks = lines.get("forgetting"), lines.get("intransigence")
    if lost is not None:
        verb = "lost" if lost.ours > 0 else "gained"
        said += f" On earlier tasks it {verb} {_value(arm, lost, lost=True)} since their best."
    if lost is not None and lacks is not None:
        said += f" It {quadrant(lost.ours, lacks.ours).replace(', ', ' and ')}."
    return said


def _ranked(known: Sequence[tuple[Arm, dict[str, Line]]]) -> str:
    arm = known[0][0]
    up = better(arm.first, arm.first.head) == "up"
    by_average = sorted(known, key=lambda pair: pair[1]["average"].ours, reverse=up)
    (best, first), (worst, last) = by_average[0], by_average[-1]
    said = (
        f"After {_count(len(best.first.R), 'task')}, {best.label} is the best of {len(known)} with an average "
        f"{measured(best.first)} of {_value(best, first['average'])}; {worst.label} is the last with "
        f"{_value(worst, last['average'])}."
    )
    lost = [(arm, lines["forgetting"]) for arm, lines in known if "forgetting" in lines]
    if len(lost) > 1:
        most, least = max(lost, key=lambda pair: pair[1].ours), min(lost, key=lambda pair: pair[1].ours)
        said += (
            f" {most[0].label} forgot the most of earlier tasks, {_value(*most, lost=True)} on average; "
            f"{least[0].label} the least, {_value(*least, lost=True)}."
        )
    return said


def _value(arm: Arm, line: Line, *, lost: bool = False) -> str:
    """A number for prose, with its standard error if it has one: accuracies in percent, what was lost in points."""
    percent = better(arm.first, arm.first.head) == "up" and float(arm.first.R.nan_to_num(0).max()) <= 1
    value, numbers = abs(line.ours) if lost else line.ours, [] if line.se is None else [line.se]
    texts = [f"{100 * v:.1f}" if percent else f"{v:.3g}" for v in (value, *numbers)]
    return " \N{PLUS-MINUS SIGN} ".join(texts) + ((" points" if lost else " %") if percent else "")


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


# Questions that need nothing but the arms, in the order of the page.
SECTIONS: dict[str, Callable[[Sequence[Arm]], list[Part]]] = {
    "As tasks go by": curves,
    "Every task after every task": lambda found: [*summary_table(found), *heats(found)],
    "Forgetting, or refusing to learn?": plane,
    "Time and memory": costs,
    "Uncertainty": uncertainty,
    "Samples": samples,
    "Was the evaluation honest?": audits,
    "Can the ratios be trusted?": ratios,
}


def report(records: Sequence[Record], *, title: str = "") -> Page:
    """Everything that `records` hold, for reading."""
    found = groups(records)
    if not found:
        raise InputError("The 'records' of report must be at least one. Got none instead.")
    return page_of(found, title=title)


def page_of(found: Sequence[Group], *, title: str = "") -> Page:
    """One group, or several with a section each."""
    if len(found) == 1:
        page = opened(title or found[0].title, conclusion(found[0]), status(found[0]))
        for heading, parts in chapters(found[0]):
            page.section(heading, *parts)
        return page
    page = opened(title or "Runs", _parted(overall(found)), tally(found))
    page.section("Summary", summary(found))
    for group in found:
        inside = [part for heading, parts in chapters(group) for part in (Heading(heading), *parts)]
        page.section(group.title, " ".join(conclusion(group)).strip(), *inside)
    return page


def chapters(group: Group) -> list[tuple[str, list[Part]]]:
    """Headings and what stands under them, where there is something."""
    experiment = group.experiment
    presets = [experiment.presets[preset] for preset in PRESETS] if experiment else []
    order = [experiment.config(arm) for preset in presets for arm in experiment.arms(preset)] if experiment else []
    found = arms(group.records, order)
    chapters: dict[str, list[Part]] = {
        "Figures": figures(group),
        "Paper beside measurement": published(group),
    }
    if not group.borrowed:
        chapters |= {heading: section(found) for heading, section in SECTIONS.items()}
    if experiment is None:
        chapters["Other numbers"] = scalars(found)
    chapters["How to get the same numbers"] = origin(found)
    return [(heading, parts) for heading, parts in chapters.items() if parts]


@dataclass(frozen=True)
class Written:
    """Where everything went."""

    page: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]


def place(out: str | Path) -> tuple[Path, Path]:
    """The page and the folder of an OUT: OUT/index.html in OUT, or NAME.html with NAME."""
    out = Path(out)
    named = out.suffix.lower() in (".html", ".htm")
    return (out, out.with_suffix("")) if named else (out / "index.html", out)


def write(page: Page, out: str | Path, *, files: bool = True, on_progress: Callable[[str], None] = silent) -> Written:
    """`page` as OUT/index.html, its pictures and tables beside it; an OUT of NAME.html puts those into NAME.

    Without `files` the page is all that is written, in a fraction of the time. `on_progress` is told the name of each
    picture and table before it is written.
    """
    at, folder = place(out)
    drawn: list[Path] = []
    tables: list[Path] = []
    for name, exhibit in exhibits(page) if files else ():
        on_progress(name)
        if isinstance(exhibit, Table):
            formats = {"csv": exhibit.csv(), "tex": exhibit.latex(), "md": exhibit.markdown()}
            for suffix, text in formats.items():
                tables.append(folder / TABLES / f"{name}.{suffix}")
                write_bytes(tables[-1], text.encode())
        else:
            with drawing.settled(exhibit.figure):  # laid out once, drawn in each format
                for kind in KINDS:
                    drawn.append(folder / FIGURES / f"{name}.{kind}")
                    write_bytes(drawn[-1], exhibit.svg if kind == "svg" else drawing.encode(exhibit.figure, kind))
    return Written(page.save(at), tuple(drawn), tuple(tables))


def exhibits(page: Page) -> Iterator[tuple[str, Table | Picture]]:
    """Every table and picture of the page under a name of its own; a coloured matrix comes as both."""
    seen: dict[str, int] = {}
    for number, (heading, parts) in enumerate(page.sections, 1):
        for part in parts:
            if not isinstance(part, Table | Heat | Picture):
                continue
            plain = f"{number:02d}-{slug(title(part)) or slug(heading) or 'part'}"
            seen[plain] = seen.get(plain, 0) + 1
            name = plain if seen[plain] == 1 else f"{plain}-{seen[plain]}"
            if isinstance(part, Picture | Table):
                yield name, part
            else:
                yield name, part.table()
                names = {"rows": part.rows, "columns": part.columns, "title": part.title, "row_label": part.corner}
                drawn = drawing.matrix(part.values, better=part.better, limits=part.limits, **names)  # type: ignore[arg-type]
                yield name, Picture(drawn, part.title or heading)


def title(part: Table | Heat | Picture) -> str:
    """What a part is called; a picture by the title that is drawn on it."""
    if not isinstance(part, Picture):
        return part.title
    axes = part.figure.axes
    return (axes[0].get_title(loc="left") or axes[0].get_title()) if axes else part.alt


def slug(text: str) -> str:
    """Plain lower-case letters, digits and dashes: a name that any file system and shell takes."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_NAME].rstrip("-")


@dataclass(frozen=True)
class Site:
    """Where everything went, and what the index concludes."""

    index: Path
    lead: str
    pages: tuple[Written, ...]


def write_site(
    volumes: Mapping[str, Sequence[Group]],
    out: str | Path,
    *,
    files: bool = False,
    on_progress: Callable[[str], None] = silent,
) -> Site:
    """A page for each of `volumes` (`reading.volumes`) and the index, at OUT/index.html or at an OUT of NAME.html.

    `files` writes figures and tables of every page as well, which takes several times as long. `on_progress` is told
    the name of each page before it is drawn.
    """
    at, folder = place(out)
    names = page_names(volumes)
    pages = []
    for name, found in volumes.items():
        on_progress(name)
        pages.append(write(page_of(found), folder / f"{names[name]}.html", files=files))
    # The index comes last: whoever sees it finds every page that it names.
    prefix = "" if at.parent == folder else f"{folder.name}/"
    index = index_page(volumes, {name: f"{prefix}{file}.html" for name, file in names.items()})
    return Site(index.save(at), overall([group for own in volumes.values() for group in own]), tuple(pages))


def index_page(volumes: Mapping[str, Sequence[Group]], addresses: Mapping[str, str]) -> Page:
    """One line a group: the page it stands on, the verdict and the conclusion."""
    found = [group for own in volumes.values() for group in own]
    rows = []
    for group in found:
        several = group.title.partition(item(group))[2].strip() if len(volumes[group.name]) > 1 else ""
        name = Link(f"{group.name} {several}".strip(), addresses[group.name])
        said = Noted(word(group), " ".join(conclusion(group)).strip())
        rows.append((name, item(group), said, len(group.seeds), len(group.records)))
    columns = ("runs", "item", "verdict", "seeds", "Records")
    return opened("Runs", _parted(overall(found)), tally(found)).section(
        "What came out", Table("Every experiment", columns, rows)
    )


def page_names(volumes: Mapping[str, Sequence[Group]]) -> dict[str, str]:
    """A file name for each, made of plain letters, none twice."""
    names: dict[str, str] = {}
    for name in volumes:
        plain = slug(name) or "runs"
        taken = {INDEX, *names.values()}
        names[name] = next(n for n in (plain, *(f"{plain}-{i}" for i in range(2, len(volumes) + 3))) if n not in taken)
    return names
