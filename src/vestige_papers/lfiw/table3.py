"""LFIW Table 3 and Fig. 3: the value of a policy from logs of another, by a learned model and by its weighted form.

Table 3 has the truth, the plain model and the weighted one at H = 100 and H = 80 on three MuJoCo tasks; Fig. 3 the
error against H, the number of steps that are weighted. The paper finds the weighted value nearer to the truth on all
three, and the error falling with H until 80 to 100.

The policies are ours, so truths differ from those in print and errors are compared, not values. The rules are about
tempered weights first: products of a hundred ratios leave one trajectory with all the weight, and then the estimate is
one simulated return. See `lfiw_policies` for every other deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from vestige.continual.record import Record
from vestige.runner.experiment import Line, Verdict, line
from vestige_papers.lfiw.policies import CHEETAH, HUMANOID, RUNS, SWIMMER, PolicyValue, by_environment, errors, gained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# (truth, plain model, weighted, weighted over the first 80 steps) as printed
PAPER = {
    SWIMMER: (36.7, 16.5, 38.9, 57.6),
    CHEETAH: (185.0, 129.7, 149.6, 152.0),
    HUMANOID: (14170.0, 8504.0, 9515.0, 10049.0),
}
ROWS = {
    "model": "plain model",
    "lfiw": "LFIW, H = T",
    "lfiw_tempered": "LFIW tempered, H = T",
    "shuffled": "shuffled weights",
    "logged": "mean logged return",
    "per_decision": "per-decision IS",
    "fitted_q": "fitted Q",
    "doubly_robust": "doubly robust",
}
HALF = 0.5  # of the plain model's error; and of the seeds, of which more must gain
FALLS = -0.5  # rank correlation of error and H
CURVES = {"lfiw": "LFIW", "lfiw_tempered": "LFIW tempered"}


class LFIWTable3(PolicyValue):
    """Off-policy evaluation: truth, plain model, weighted model, and what the logs say without one."""

    name, item = RUNS, "LFIW Table 3"
    rule = (
        "By mean absolute error over seeds. A seed gains if its tempered value is nearer to the truth than the plain "
        "model's and lies outside of the range of 95 % of random deals of the same weights; an environment gains if "
        "the error of tempered weights at H = T is below the plain model's and more than half of its seeds gain. "
        f"Reproduced if HalfCheetah gains, that error is at most {HALF:g} of the plain model's there, and it is above "
        "the plain model's on no other environment; partly if at least half of the environments gain; not otherwise. "
        "Without HalfCheetah it is not judged."
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The table, the errors, and what the weights are worth."""
        out = []
        for name, runs in by_environment(records).items():
            truth, model, weighted, first = PAPER.get(name, (None, None, None, None))
            printed = {"model": model, "lfiw": weighted}
            out.append(line(name, "truth, evaluated policy", _each(runs, "truth"), paper=truth))
            for key, words in ROWS.items():
                out.append(line(name, words, _each(runs, key), paper=printed.get(key)))
            at = _at_80(runs[0])
            out.append(line(name, "LFIW, H = 0.8 T", [float(r.values["lfiw.values"][at]) for r in runs], paper=first))
            for key, words in ROWS.items():
                paper = None if truth is None or printed.get(key) is None else abs(truth - printed[key])  # type: ignore[operator]
                if key == "shuffled":  # the mean over deals is the plain model again
                    out.append(
                        line(name, f"|error|, {words}, a single deal", [float(r.values["deals"][0]) for r in runs])
                    )
                else:
                    out.append(line(name, f"|error|, {words}", errors(runs, key), paper=paper))
            as_near = [100 * float(r.values["deals"][1]) for r in runs]
            out.append(line(name, "deals at random that come as near (%)", as_near))
            for key, words in (("lfiw", "untempered"), ("lfiw_tempered", "tempered")):
                sizes = [float(r.values[f"{key}.ess"][-1]) for r in runs]
                out.append(line(name, f"effective trajectories, {words}", sizes))
            out.append(line(name, "steps beyond the logs (%)", [100 * r.details["outside"] for r in runs]))
        return out

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The rule."""
        groups = by_environment(records)
        if CHEETAH not in groups:
            return Verdict("not judged", "HalfCheetah was not run.")
        better, halved, harmed, said = [], False, [], []
        for name, runs in groups.items():
            plain, tempered = (fmean(errors(runs, key)) for key in ("model", "lfiw_tempered"))
            seeds = sum(gained(r) for r in runs)
            better += [name] if tempered < plain and seeds > HALF * len(runs) else []
            harmed += [name] if tempered > plain else []
            said.append(
                f"{name} {plain:.4g} plain, {tempered:.4g} tempered, {fmean(errors(runs, 'lfiw')):.4g} untempered, "
                f"{fmean(float(r.values['deals'][0]) for r in runs):.4g} dealt at random, "
                f"{fmean(errors(runs, 'logged')):.4g} the mean logged return, {seeds} of {len(runs)} seeds gain"
            )
            if name == CHEETAH:
                halved = tempered <= HALF * plain
        why = f"Mean absolute errors: {'; '.join(said)}."
        if CHEETAH in better and halved and not harmed:
            return Verdict("reproduced", why)
        return Verdict("partly" if 2 * len(better) >= len(groups) else "not", why)


class LFIWFig3(PolicyValue):
    """Error of the weighted value against the number of weighted steps."""

    name, item = "lfiw-fig3", "LFIW Fig. 3"
    rule = (
        "By mean absolute error over seeds, untempered as in the paper: does it fall with H (rank correlation at most "
        f"{FALLS:g}) and end, at H = T, below that at H = 0? Reproduced if it does on every environment; partly if it "
        "does on at least half of them, or on every one with tempered weights; not otherwise."
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The error at each H, untempered and tempered."""
        out = []
        for name, runs in by_environment(records).items():
            for key, words in CURVES.items():
                each = torch.stack([_error_curve(r, key) for r in runs])
                for h, column in zip(runs[0].values[f"{key}.h"].tolist(), each.T, strict=True):
                    out.append(line(name, f"|error|, {words}, H = {h:g}", column.tolist()))
        return out

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The rule."""
        groups, falls, said = by_environment(records), dict.fromkeys(CURVES, 0), []
        for name, runs in groups.items():
            for key, words in CURVES.items():
                h = runs[0].values[f"{key}.h"]
                mean = torch.stack([_error_curve(r, key) for r in runs]).mean(0)
                trend = rank_correlation(h, mean)
                falls[key] += trend <= FALLS and bool(mean[-1] < mean[0])
                said.append(f"{name}, {words}: {mean[0]:.4g} to {mean[-1]:.4g}, rank correlation {trend:.2f}")
        why = f"From H = 0 to H = T: {'; '.join(said)}."
        if falls["lfiw"] == len(groups):
            return Verdict("reproduced", why)
        some = 2 * falls["lfiw"] >= len(groups) or falls["lfiw_tempered"] == len(groups)
        return Verdict("partly" if some else "not", why)

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """One picture an environment; bands are the standard error over classifiers, as in the paper, and seeds."""
        from vestige.show import curves

        drawn = {}
        for name, runs in by_environment(records).items():
            series, bands = {}, {}
            for key, words in CURVES.items():
                off = torch.cat([(r.values[f"{key}.by_classifier"] - r.values["truth"][0]).abs() for r in runs])
                mean = off.mean(0)
                error = off.std(0) / math.sqrt(len(off)) if len(off) > 1 else torch.zeros_like(mean)
                series[words], bands[words] = mean, (mean - error, mean + error)
            logged = {"mean logged return": fmean(errors(runs, "logged"))}
            x = runs[0].values["lfiw.h"]
            drawn[f"{self.name}-{name}"] = curves(
                series,
                x,
                title=f"{self.item}: {name}",
                x_label="H, weighted steps",
                y_label="|error| of the value",
                bands=bands,
                reference=logged,
            )
        return drawn


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Spearman's; 0 where one of them does not change."""
    ranks = np.stack([rankdata(x), rankdata(y)])
    return float(torch.corrcoef(torch.from_numpy(ranks))[0, 1].nan_to_num(0.0))


def _each(runs: Sequence[Record], key: str) -> list[float]:
    return [float(r.values[key][0]) for r in runs]


def _error_curve(record: Record, key: str) -> Tensor:
    """|v - v_hat_H| for each H."""
    return (record.values[f"{key}.values"] - record.values["truth"][0]).abs()


def _at_80(record: Record) -> int:
    """Where H = 0.8 T, or the next below it, stands on the curve."""
    h = record.values["lfiw.h"]
    return int((h <= 0.8 * h[-1]).sum()) - 1
