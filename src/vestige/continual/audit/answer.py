"""What an audit says: eleven questions of Farquhar and Gal section 5, each answered with evidence or not at all.

Five desiderata "ought either to be respected or to be explicitly mentioned as absent"; six more make an evaluation
harder. A question whose evidence was not gathered is *not measured*, which is no praise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vestige.core.errors import StoreError

Verdict = Literal["holds", "fails", "not measured"]

# The paper's list, in its order. The words say what holds.
DESIDERATA = {
    "resemblance": "Inputs of later tasks sometimes look like old classes",
    "shared_head": "All tasks share one output head",
    "no_task_labels": "No task labels at test time",
    "no_retraining": "No retraining on old tasks, and no data kept of them",
    "many_tasks": "More than two tasks",
}
HARDER = {
    "unclear_borders": "The learner is not told where tasks begin",
    "continuous": "Tasks drift rather than jump",
    "overlapping": "A class comes back in several tasks",
    "long": "A long sequence of tasks",
    "time": "The time for a task does not grow with the number of tasks",
    "memory": "Memory does not grow with the number of tasks",
}
QUESTIONS = DESIDERATA | HARDER


@dataclass(frozen=True)
class Answer:
    """One question, its verdict, the evidence in words and, where there are any, its numbers."""

    question: str
    verdict: Verdict
    evidence: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Audit:
    """Eleven answers about one evaluation."""

    subject: str
    answers: Mapping[str, Answer]

    def __getitem__(self, question: str) -> Answer:
        return self.answers[question]

    @property
    def failed(self) -> tuple[str, ...]:
        """The desiderata, of the first five, that fail."""
        return tuple(q for q in DESIDERATA if self.answers[q].verdict == "fails")

    @property
    def unknown(self) -> tuple[str, ...]:
        """Those, of the first five, that were not measured."""
        return tuple(q for q in DESIDERATA if self.answers[q].verdict == "not measured")

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Kind, question, verdict, evidence: a table's rows."""
        kinds = dict.fromkeys(DESIDERATA, "desideratum") | dict.fromkeys(HARDER, "harder")
        return [(kinds[q], QUESTIONS[q], self.answers[q].verdict, self.answers[q].evidence) for q in QUESTIONS]

    def paragraph(self) -> str:
        """For the appendix of a paper: what holds, what does not, what nobody measured."""

        def listed(verdict: Verdict) -> str:
            found = [f"{QUESTIONS[q].lower()} ({a.evidence})" for q, a in self.answers.items() if a.verdict == verdict]
            return "; ".join(found)

        parts = [f"We audited the evaluation '{self.subject}' against the desiderata of Farquhar and Gal."]
        names: tuple[tuple[Verdict, str], ...] = (
            ("holds", "These hold"),
            ("fails", "These do not hold"),
            ("not measured", "These were not measured"),
        )
        parts += [f"{head}: {listed(verdict)}." for verdict, head in names if listed(verdict)]
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; None for a number that is not finite."""
        answers = {}
        for name, a in self.answers.items():
            numbers = {key: value if math.isfinite(value) else None for key, value in a.numbers.items()}
            answers[name] = {"verdict": a.verdict, "evidence": a.evidence, "numbers": numbers}
        return {"subject": self.subject, "answers": answers}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Audit:
        """The inverse of `to_json`."""
        try:
            answers = {}
            for name in QUESTIONS:
                a = fields["answers"][name]
                numbers = {key: math.nan if value is None else float(value) for key, value in a["numbers"].items()}
                answers[name] = Answer(name, a["verdict"], a["evidence"], numbers)
            return cls(fields["subject"], answers)
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"This is no audit: {error}.") from None
