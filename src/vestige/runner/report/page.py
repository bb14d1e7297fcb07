"""The report: one page from Records of experiments, of bare runs, or of both. It computes nothing they do not hold.

One group of runs makes a page whose sections are the questions people ask; several make a page with a section each,
under a summary. A section with nothing to show is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vestige.continual.record import Record
from vestige.core.errors import InputError
from vestige.runner.experiment import PRESETS
from vestige.runner.report.arms import Arm, arms
from vestige.runner.report.conclusion import conclusion, overall, summary
from vestige.runner.report.costs import costs
from vestige.runner.report.curves import curves, plane
from vestige.runner.report.matrices import heats, summary_table
from vestige.runner.report.origin import origin
from vestige.runner.report.published import figures, published
from vestige.runner.report.reading import Group, groups
from vestige.runner.report.trust import audits, ratios
from vestige.runner.report.uncertainty import samples, scalars, uncertainty
from vestige.show import Heading, Page, Part, Table

# Questions that need nothing but the arms, in the order of the page.
SECTIONS: dict[str, Callable[[Sequence[Arm]], list[Part]]] = {
    "Every task after every task": lambda found: [*_some(summary_table(found)), *heats(found)],
    "As tasks go by": curves,
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
        page = Page(title or found[0].title, conclusion(found[0]))
        for heading, parts in chapters(found[0]):
            page.section(heading, *parts)
        return page
    page = Page(title or "Runs", overall(found))
    page.section("Summary", summary(found))
    for group in found:
        inside = [part for heading, parts in chapters(group) for part in (Heading(heading), *parts)]
        page.section(group.title, conclusion(group), *inside)
    return page


def chapters(group: Group) -> list[tuple[str, list[Part]]]:
    """Headings and what stands under them, where there is something."""
    experiment = group.experiment
    presets = [experiment.presets[preset] for preset in PRESETS] if experiment else []
    order = [experiment.config(arm) for preset in presets for arm in experiment.arms(preset)] if experiment else []
    found = arms(group.records, order)
    chapters: dict[str, list[Part]] = {
        "Paper beside measurement": published(group),
        "Figures": figures(group),
    }
    if not group.borrowed:
        chapters |= {heading: section(found) for heading, section in SECTIONS.items()}
    if experiment is None:
        chapters["Other numbers"] = _some(scalars(found))
    chapters["How to get the same numbers"] = origin(found)
    return [(heading, parts) for heading, parts in chapters.items() if parts]


def _some(table: Table | None) -> list[Part]:
    return [] if table is None else [table]
