"""One step: samples through the coding and the feature map into the chain, and its figures held against the alarms."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.chains import Chain
from vestige.chains.report import Task
from vestige.core.errors import VestigeWarning
from vestige.features import FeatureMap
from vestige.monitor import intake
from vestige.monitor.alarms import Alarm, ringing
from vestige.monitor.coding import Coding
from vestige.monitor.folder import Write
from vestige.monitor.history import Step
from vestige.monitor.intake import Given
from vestige.monitor.settings import now

FEATURES_FILE = "features.json"


@dataclass(frozen=True)
class Judged:
    """A step that was taken in memory, and what the folder must hold for it."""

    step: Step
    head: dict[str, Any]
    seen: FeatureMap
    writes: dict[str, Write]


def judge(
    real: Mapping[Task, Given],
    model: Mapping[Task, Given],
    chain: Chain,
    seen: FeatureMap,
    head: Mapping[str, Any],
    past: Sequence[Step],
    seed: int,
) -> Judged:
    """Take a step with `chain`, which goes on in place; `seen` stays as it is, and a map that is fitted is another."""
    coding = None if head["coding"] is None else Coding.from_json(head["coding"])
    real_, model_, coding = intake.read(real, model, coding, head["drop"])
    rows = intake.admitted(real_, model_, seen.shape_, chain.min_samples)
    writes: dict[str, Write] = {"state": chain.save}
    if seen.shape_ is None and (real_ or model_):
        seen = copy.deepcopy(seen).fit(real_ if head["keep_moments"] and real_ else model_, seed=seed)
        writes["features"] = lambda at: seen.save(at / FEATURES_FILE)
    codes = [{task: seen.codes(x).double() for task, x in side.items()} for side in rows]
    report = chain.step(*codes, seed=seed)
    copied = intake.copies(*rows)
    if copied:
        text = f"{copied} model samples of step {report.step} equal a real one; generated samples are kept."
        warnings.warn(text, VestigeWarning, stacklevel=3)
    alarms = [Alarm(**fields) for fields in head["thresholds"]]
    rang = ringing(alarms, [*(step.report for step in past), report])
    counts = {name: {t: len(x) for t, x in side.items()} for name, side in zip(("real", "model"), rows, strict=True)}
    coded = None if coding is None else coding.to_json()
    return Judged(Step(report, rang, seed, now(), counts, copied), {**head, "coding": coded}, seen, writes)
