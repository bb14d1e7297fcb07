"""From facts about an evaluation to answers. Who gathered the facts (a run, a Record, a description) does not matter.

A fact that is None was not gathered, and its question stays open. Limits are named here: tasks that make a sequence
long, the least resemblance that counts, the growth of a cost that counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vestige.continual.audit.answer import QUESTIONS, Answer, Audit, Verdict
from vestige.continual.audit.growth import NAMES, grows, grows_exactly, growth

LONG = 20  # tasks; the longest sequences of the papers' day have 10 to 20
LEAST_RESEMBLANCE = 0.02  # of the inputs, beyond what they get with their coordinates in other orders
LARGEST_P = 0.05  # how often another order may do as well


@dataclass(frozen=True)
class Facts:
    """What is known about an evaluation. `where` says by field how it is known, for the evidence."""

    subject: str
    tasks: int | None = None
    shared_head: bool | None = None
    labels_at_test: bool | None = None
    resemblance: Mapping[str, float] | None = None  # as `summarised`
    same_inputs: bool | None = None  # declared: tasks differ by a fixed map of the inputs
    kept_samples: int | None = None
    kept_bytes: int | None = None
    retrains: bool | None = None
    borders_told: bool | None = None
    continuous: bool | None = None
    overlapping: bool | None = None
    seconds: Sequence[float] | None = None  # of training, by task
    held_bytes: Sequence[float] | None = None  # by task
    where: Mapping[str, str] = field(default_factory=dict)


def audit_of(facts: Facts) -> Audit:
    """All eleven answers."""
    simple = {
        "shared_head": _plain(facts, "shared_head", facts.shared_head, "one head", "a head for each task"),
        "unclear_borders": _plain(
            facts,
            "borders_told",
            None if facts.borders_told is None else not facts.borders_told,
            "no border is told",
            "the learner hears of each new task",
        ),
        "continuous": _plain(facts, "continuous", facts.continuous, "classes fade in and out", "tasks jump"),
        "overlapping": _plain(facts, "overlapping", facts.overlapping, "classes come back", "each class in one task"),
    }
    answers = simple | {
        "resemblance": _resemblance(facts),
        "no_task_labels": _labels(facts),
        "no_retraining": _kept(facts),
        "many_tasks": _count(facts, "many_tasks", 3),
        "long": _count(facts, "long", LONG),
        "time": _growth("time", facts.seconds, "seconds of training"),
        "memory": _growth("memory", facts.held_bytes, "bytes held"),
    }
    return Audit(facts.subject, {q: answers[q] for q in QUESTIONS})


def _plain(facts: Facts, name: str, holds: bool | None, yes: str, no: str) -> Answer:
    question = {"borders_told": "unclear_borders"}.get(name, name)
    if holds is None:
        return Answer(question, "not measured", "nothing is known")
    return Answer(question, "holds" if holds else "fails", (yes if holds else no) + _source(facts, name))


def _source(facts: Facts, name: str) -> str:
    return f", {facts.where[name]}" if name in facts.where else ""


def _resemblance(facts: Facts) -> Answer:
    """What is declared of the inputs decides: a rank lets one stream of permutations in twenty pass by chance."""
    found = facts.resemblance
    measured = "" if found is None else _looked(found)
    if facts.same_inputs:
        declared = "tasks are the same inputs under a fixed map" + _source(facts, "same_inputs")
        return Answer("resemblance", "fails", "; ".join(filter(None, (declared, measured))), dict(found or {}))
    if found is None:
        return Answer("resemblance", "not measured", "no model looked at a task before it trained")
    if found["p"] > LARGEST_P:
        return Answer("resemblance", "fails", f"{measured}: no more than by chance", dict(found))
    if found["difference"] < LEAST_RESEMBLANCE:
        few = f"{measured}: hardly by chance, but by less than {LEAST_RESEMBLANCE:.0%} of the inputs, which are too few"
        return Answer("resemblance", "fails", few, dict(found))
    return Answer("resemblance", "holds", measured, dict(found))


def _looked(found: Mapping[str, float]) -> str:
    at_all = f" (any class: {found['sure_of_any']:.1%})" if "sure_of_any" in found else ""
    return (
        f"before a task trains, {found['named_old']:.1%} of its inputs are surely named an old class{at_all}; with "
        f"their coordinates in other orders, {found['other_orders']:.1%} (p = {found['p']:.3f})"
    )


def _labels(facts: Facts) -> Answer:
    told = facts.labels_at_test
    if facts.shared_head is False and told is not True:
        return Answer("no_task_labels", "fails", "which head answers is chosen by the task")
    if told is None:
        return Answer("no_task_labels", "not measured", "nothing is known")
    words = "predictions are told the task" if told else "predictions are not told the task"
    return Answer("no_task_labels", "fails" if told else "holds", words + _source(facts, "labels_at_test"))


def _kept(facts: Facts) -> Answer:
    kept, retrains = facts.kept_samples, facts.retrains
    numbers = {} if kept is None else {"samples": float(kept), "bytes": float(facts.kept_bytes or 0)}
    if retrains or kept or facts.kept_bytes:
        size = f" ({facts.kept_bytes} bytes)" if facts.kept_bytes else ""
        some = kept or ("some" if facts.kept_bytes else "")
        parts = [f"{some} samples of past tasks are kept{size}" + _source(facts, "kept_samples")] if some else []
        parts += ["old tasks are trained on again" + _source(facts, "retrains")] if retrains else []
        return Answer("no_retraining", "fails", "; ".join(parts), numbers)
    if kept is None or retrains is None:
        return Answer("no_retraining", "not measured", "nothing is known of what is kept or seen again", numbers)
    return Answer("no_retraining", "holds", "no sample is kept and no task seen again", numbers)


def _count(facts: Facts, question: str, least: int) -> Answer:
    if facts.tasks is None:
        return Answer(question, "not measured", "the number of tasks is not known")
    verdict: Verdict = "holds" if facts.tasks >= least else "fails"
    return Answer(question, verdict, f"{facts.tasks} tasks; {least} would do", {"tasks": float(facts.tasks)})


def _growth(question: str, costs: Sequence[float] | None, what: str) -> Answer:
    if costs is None:
        return Answer(question, "not measured", f"{what} were not recorded")
    found = growth(costs)
    if found["slope"] != found["slope"]:
        return Answer(question, "not measured", f"{len(costs)} tasks are too few for a line through their {what}")
    evidence = (
        f"{what} change by {found['slope']:+.1%} of their mean a task (standard error {found['se']:.1%}), from "
        f"{found['first']:.4g} to {found['last']:.4g}"
    )
    if question == "memory":
        evidence += f"; up to {NAMES} bytes a task do not count"
        return Answer(question, "fails" if grows_exactly(found) else "holds", evidence, found)
    return Answer(question, "fails" if grows(found) else "holds", evidence, found)
