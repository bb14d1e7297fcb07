"""`vestige audit WHAT`: the desiderata of a continual-learning evaluation, each answered with evidence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from vestige.cli import output
from vestige.core import InputError, VestigeError
from vestige.core.plain import plain

if TYPE_CHECKING:
    from vestige.continual.audit import Audit as Answers

MARKS = {"holds": "holds", "fails": "fails", "not measured": "-"}


class DesiderataFail(VestigeError):
    """A desideratum fails, and --strict was given."""


@dataclass(frozen=True)
class AuditVerb(output.Verb):
    """Was an evaluation of continual learning honest? Fifteen questions, each answered with evidence.

    WHAT is one of three. Records (.json, .jsonl or a folder). A description of somebody's evaluation (.toml): a table
    [evaluation] with a name and any of tasks, shared_head, labels_at_test, same_inputs, kept_samples, kept_bytes,
    retrains, borders_told, continuous, overlapping, seconds, held_bytes, scenario, counts_compute, search_seeds and
    tests_while_training; what is not said is not measured. Or the name of an experiment, each of whose arms is then
    trained and watched; `vestige list experiments` has the names.

    Exit codes: 0 the audit was made; 1 --strict was given and one of the five desiderata fails; 2 the file, the name or
    an option is not right.
    """

    what: Positional[str]
    """Records, a description or an experiment."""
    preset: Literal["smoke", "laptop", "paper"] | None = None
    """Of an experiment: laptop unless given. smoke takes seconds, on other data, where resemblance means little."""
    seed: int | None = None
    """Of an experiment: 0 unless given."""
    arm: str = ""
    """Of an experiment: only those arms whose name has these words."""
    strict: bool = False
    """End with exit code 1 if one of the five desiderata fails: for the tests of a research repository."""
    paragraph: bool = False
    """Print a paragraph for a paper's appendix instead of the table."""

    def run(self) -> None:
        """Read or train, answer, print."""
        path = Path(self.what)
        if path.suffix in (".toml", ".json", ".jsonl") or path.exists():
            if self.preset is not None or self.seed is not None or self.arm:
                raise InputError(f"--preset, --seed and --arm are for experiments. Got the file {path} instead.")
            found = read(path)
        else:
            found = self._trained()
        documents = {name: plain(a) | {"failed": a.failed, "unknown": a.unknown} for name, a in found.items()}
        alone = path.exists() and len(found) == 1  # a file of one audit is that audit
        words = "\n\n".join(answers.paragraph() for answers in found.values())
        shown = [words] if self.paragraph else tables(self.what, found)
        self.answer(next(iter(documents.values())) if alone else documents, *shown)
        failed = {name: answers.failed for name, answers in found.items() if answers.failed}
        if self.strict and failed:
            told = "; ".join(f"{name}: {', '.join(which)}" for name, which in failed.items())
            raise DesiderataFail(f"Of the five desiderata these fail. {told}.")

    def _trained(self) -> dict[str, Answers]:
        """The audit of every arm of an experiment."""
        from vestige.continual.audit import audit
        from vestige.core import checks
        from vestige.runner.registry import EXPERIMENTS
        from vestige.runner.trained import labelled_arms

        owner, preset, seed = "vestige audit", self.preset or "laptop", self.seed or 0
        experiment = EXPERIMENTS[checks.one_of(self.what, EXPERIMENTS, "file or experiment", owner)]
        checks.whole(seed, "seed", owner, low=0)
        trained, arms = labelled_arms(experiment, preset)
        chosen = {label: arm for label, arm in arms.items() if self.arm in label}
        if not chosen:
            checks.refuse("arm", owner, f"in one of {'; '.join(arms)}", repr(self.arm))
        found = {}
        for label, arm in chosen.items():
            stream, learner = trained.parts(arm, seed)
            epochs = 1 if stream.declared.ordered else arm.epochs
            how: dict[str, Any] = {"seed": seed, "epochs": epochs, "batch_size": arm.batch_size}
            how |= trained.options(arm)
            with output.shares(label) as reach:
                found[label] = audit(stream, learner, on_progress=lambda p: reach(p.done / p.total, None), **how)
        if cut := experiment.cut.get(preset, ""):
            output.note(f"In place of the published setting, '{preset}' has: {cut}.")
        return found


def read(path: Path) -> dict[str, Answers]:
    """The audit of what lies at `path`; of several Records, each under its id."""
    from vestige.continual.audit import described, from_record
    from vestige.runner.report import gather

    if not path.exists():
        raise InputError(f"The 'file' of vestige audit must be there. Got {path} instead.")
    if path.suffix == ".toml":
        return {str(path): described(path)}
    if path.suffix not in (".json", ".jsonl") and not path.is_dir():
        raise InputError(
            "The 'file' of vestige audit must be Records (.json, .jsonl or a folder) or a description (.toml). "
            f"Got {path} instead."
        )
    with output.progress("Reading Records"):
        records = gather([path])
    if not records:
        raise InputError(f"The folder '{path}' must hold Records. Got none instead.")
    return {str(path) if len(records) == 1 else record.id: from_record(record) for record in records}


def tables(title: str, found: dict[str, Answers]) -> list[output.Table]:
    """One audit with its evidence; several as a table of verdicts, and the evidence for what fails of the five."""
    from vestige.continual.audit import QUESTIONS

    if len(found) == 1:
        (only,) = found.values()
        return [output.Table(only.subject, ("", "question", "verdict", "evidence"), only.rows())]
    rows = [(name, *(MARKS[answers[q].verdict] for q in QUESTIONS)) for name, answers in found.items()]
    verdicts = output.Table(title, ("", *QUESTIONS), rows, "A dash is what was not measured.")
    flaws = [(name, q, answers[q].evidence) for name, answers in found.items() for q in answers.failed]
    evidence = output.Table("What fails of the five desiderata", ("", "question", "evidence"), flaws)
    return [verdicts, evidence] if flaws else [verdicts]
