"""Beyond the papers: published evaluations, described as streams, audited.

`papers` holds what the papers at hand say about evaluations of their own and of others, each fact with its
place. From the description alone follow head, labels, kept data and length. Resemblance is not declared but measured:
where the description fits a stream that can be made here, plain training goes through it and the audit looks. What
nobody wrote down is not measured, which is the commonest verdict; that is a finding about papers, not about methods.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vestige.continual.audit import DESIDERATA, QUESTIONS, Audit, Facts, audit, audit_of, from_record
from vestige.continual.record import Record
from vestige.core.plain import plain
from vestige.runner import Claim, Experiment, Finding, Line, NotJudged, OnProgress, Rule, line, those
from vestige_papers.beyond.papers import PUBLISHED
from vestige_papers.robust import audit as robust_audit
from vestige_papers.robust.audit import PLAIN, SPLIT, RobustAuditConfig, holds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FASHION = "split fashion"


@dataclass(frozen=True)
class BeyondAuditConfig:
    """`evaluation` is set by the arms; the rest is how the streams are made that resemblance is measured on."""

    evaluation: str = ""
    data: str = "mnist"
    fashion: str = "fashion_mnist"
    per_class: int = 500
    permuted: int = 10
    hidden: tuple[int, ...] = (100,)
    epochs: int = 3


class BeyondAudit(Experiment[BeyondAuditConfig]):
    """Evaluations of other papers, described as streams: which desiderata hold, and which nobody wrote down."""

    name = "beyond-audit"
    item = "published evaluations, audited"
    rule = Rule(
        Claim(
            "every desideratum that the papers say an evaluation sets aside is flagged", lambda places: places["aside"]
        ),
        Claim("none that they say it respects is flagged", lambda places: places["respected"]),
        Claim(
            "every evaluation that is known to respect all five is one in which print has the methods that keep no "
            "data do badly (Farquhar and Gal section 5: no prior-focused approach has been shown to perform well in "
            "such an evaluation)",
            lambda places: places["whole"],
        ),
        partly=those("a") & (those("b") | those("c")),
        note="Judged on every seed: flagged is what is in all of them, not flagged what is in none.",
    )
    presets: ClassVar[Mapping[str, BeyondAuditConfig]] = {
        "smoke": BeyondAuditConfig(data="digits", fashion="digits", per_class=20, permuted=3, hidden=(16,), epochs=1),
        "laptop": BeyondAuditConfig(),
        "paper": BeyondAuditConfig(per_class=5000, hidden=(256, 256), epochs=10),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 3, "paper": 3}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "digits in place of MNIST, on which no network here sees shape; few rows, epochs and units",
        "laptop": "500 of about 6000 training rows a class; one layer of 100 units, not 256-256",
    }

    def arms(self, config: BeyondAuditConfig) -> Sequence[BeyondAuditConfig]:
        """An evaluation each."""
        return [dataclasses.replace(config, evaluation=name) for name in PUBLISHED]

    def run(self, config: BeyondAuditConfig, seed: int, on_progress: OnProgress) -> Record:
        """Read the description; measure resemblance where it can be."""
        described = PUBLISHED[config.evaluation]
        numbers: Mapping[str, float] | None = None
        if described.stream:
            on_progress(0.0, f"{config.evaluation}, resemblance")
            made = RobustAuditConfig(
                stream=SPLIT if described.stream == FASHION else described.stream,
                method=PLAIN,
                data=config.fashion if described.stream == FASHION else config.data,
                per_class=config.per_class,
                permuted=config.permuted,
                hidden=config.hidden,
                epochs=config.epochs,
            )
            numbers = measured(made, seed)
        values = {name: value for name, (value, _) in described.facts.items()}
        where = {name: place for name, (_, place) in described.facts.items()}
        found = audit_of(Facts(config.evaluation, resemblance=numbers, where=where, **values))
        return self.record(config, seed, audit=plain(found))

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """In how many evaluations each question fails and holds; then the five of each, where one is known or said."""
        audits = by_evaluation(records)
        out = []
        for q in QUESTIONS:
            verdicts = [found[0][q].verdict for found in audits.values()]
            out += [line("all", f"{q} {v}", [float(verdicts.count(v))]) for v in ("holds", "fails")]
        for name, found in audits.items():
            said = PUBLISHED[name].said
            for q in DESIDERATA:
                paper = float(said[q]) if q in said else None
                if paper is not None or any(a[q].verdict != "not measured" for a in found):
                    out.append(line(name, q, [holds(a, q) for a in found], paper=paper))
        return out

    def facts(self, records: Sequence[Record]) -> dict[str, list[Finding]]:
        """Findings on what is set aside, on what is respected, and on evaluations that respect all five."""
        audits = by_evaluation(records)
        absent = [name for name in PUBLISHED if name not in audits]
        if absent:
            raise NotJudged(f"there is no Record of {'; '.join(absent)}.")
        places: dict[str, list[Finding]] = {"aside": [], "respected": [], "whole": [], "flagged": []}
        for name, found in audits.items():
            for q, respected in PUBLISHED[name].said.items():
                agree = all((a[q].verdict == "fails") != respected for a in found)
                places["respected" if respected else "aside"].append(Finding(agree, case=f"{name}: {q}"))
            if any(not a.failed and not a.unknown for a in found):
                places["whole"].append(Finding(PUBLISHED[name].fails, case=name))
            places["flagged"].append(Finding(any(a.failed for a in found), case=name))
        return places

    def remarks(self, facts: Mapping[str, Sequence[Finding]]) -> str:
        """How many there are."""
        failing = sum(bool(f.holds) for f in facts["flagged"])
        whole = [f.case for f in facts["whole"]]
        return (
            f"Of {len(facts['flagged'])} evaluations {failing} set at least one of the five aside and {len(whole)} are "
            f"known to respect all five ({'; '.join(whole) or 'none'})."
        )

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Evaluations by questions; what was not measured is blank."""
        from vestige.show import matrix

        audits = by_evaluation(records)
        cells = [[holds(found[0], q) for q in QUESTIONS] for found in audits.values()]
        title = "What holds (1) and fails (0) in published evaluations"
        drawn = matrix(cells, rows=list(audits), columns=list(QUESTIONS), title=title, limits=(0.0, 1.0))
        return {"evaluations": drawn}


@functools.cache
def measured(config: RobustAuditConfig, seed: int) -> Mapping[str, float]:
    """Resemblance on a stream. Many evaluations share one: what a unit gives does not depend on who asked first."""
    stream = robust_audit.stream_of(config, seed)
    learner = robust_audit.learner_of(config, stream, seed)
    return audit(stream, learner, seed=seed, epochs=config.epochs)["resemblance"].numbers


def by_evaluation(records: Sequence[Record]) -> dict[str, list[Audit]]:
    """Audits of each evaluation, by seed."""
    found: dict[str, list[Audit]] = {}
    for record in sorted(records, key=lambda r: r.seed):
        if record.audit is not None:
            found.setdefault(record.config["evaluation"], []).append(from_record(record))
    return found
