"""What is read off the Records of `beyond-vestige`: the facts on which its claims are checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.continual.generation import rank_correlation
from vestige.continual.record import Record
from vestige_papers.beyond.image_cells import PATHS, REAL

# The parts of the experiment; a unit belongs to one of them.
CARRIED, ORACLE, TABLE, CHAIN = "images, carried", "images, oracle", "table", "chain"
JUDGED = ("js", "kl")  # divergences of a chain
SATURATED = 0.65  # nats of JS without smoothing, of a possible 0.69
ALPHA = 0.05


@dataclass(frozen=True, eq=False)
class ClassCells:
    """The cells of one class and seed, carried and by the oracles."""

    name: str
    paths: list[str]
    verdicts: list[str]
    carried: Mapping[str, Float64[Tensor, " k"]]
    oracle: Mapping[str, Float64[Tensor, " k"]]

    def held(self, key: str) -> list[bool]:
        """Whether the carried interval holds the oracle called `key`; of "at least" the low end alone is a promise."""
        ends = zip(self.verdicts, self.carried["js_low"], self.carried["js_high"], self.oracle[key], strict=True)
        return [
            bool(low <= truth and (verdict == "at least" or truth <= high))
            for verdict, low, high, truth in ends
            if verdict != "refused" and not math.isnan(truth)
        ]

    def severity_taus(self, path: str) -> float:
        """Kendall's tau of the carried JS and the severity, from real images on along a path."""
        some = torch.tensor([own in (REAL, path) for own in self.paths])
        return rank_correlation(self.carried["severity"][some], self.carried["js"][some])


class VestigeFacts:
    """What the claims are checked on."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.images: dict[str, list[ClassCells]] = {}
        carried = {self._key(r): r for r in records if r.config["part"] == CARRIED}
        oracle = {self._key(r): r for r in records if r.config["part"] == ORACLE}
        for key in sorted(carried.keys() & oracle.keys()):
            own, other = carried[key], oracle[key]
            verdicts = [str(v) for v in own.details["verdicts"]]
            cells = ClassCells(key[0], list(own.details["paths"]), verdicts, own.values, other.values)
            self.images.setdefault(key[0], []).append(cells)
        self.tables: dict[str, list[Record]] = {}
        self.chains: dict[str, dict[str, list[Record]]] = {}
        for r in records:
            if r.config["part"] == TABLE:
                self.tables.setdefault(str(r.config["table"]), []).append(r)
            elif r.config["part"] == CHAIN:
                beds = self.chains.setdefault(str(r.config["strategy"]), {})
                beds.setdefault(str(r.config["bed"]), []).append(r)

    @staticmethod
    def _key(record: Record) -> tuple[str, int, int]:
        return str(record.config["data"]), record.seed, int(record.details["class"])

    def joined(self, data: str, side: str, key: str) -> Float64[Tensor, " k"]:
        """One number of every cell of a data set."""
        return torch.cat([getattr(cells, side)[key] for cells in self.images[data]])

    def refused(self, data: str) -> float:
        """The share of carried cells."""
        said = [verdict for cells in self.images[data] for verdict in cells.verdicts]
        return said.count("refused") / len(said)

    def off(self, data: str, key: str = "", side: str = "carried") -> float:
        """The mean distance from the oracle, of the carried JS or of another oracle's."""
        apart = (self.joined(data, side, key or "js") - self.joined(data, "oracle", "js")).abs()
        return float(apart.nanmean())

    def tau(self, data: str, side: str, key: str) -> float:
        """Kendall's tau to the oracle over all cells of a data set."""
        return rank_correlation(self.joined(data, side, key), self.joined(data, "oracle", "js"))

    def holds(self, data: str, key: str) -> float:
        """How often the carried interval holds an oracle."""
        return mean_of_known(float(held) for cells in self.images[data] for held in cells.held(key))

    def width(self, data: str, side: str) -> float:
        """The mean width of the intervals."""
        return float((self.joined(data, side, "js_high") - self.joined(data, side, "js_low")).nanmean())

    def sure(self, data: str) -> float:
        """The share of carried cells whose two ends are a promise."""
        said = [verdict for cells in self.images[data] for verdict in cells.verdicts]
        return said.count("ok") / len(said)

    def fid_tau(self, data: str, side: str) -> float:
        """Kendall's tau to FID within a class, mean over classes."""
        each = (rank_correlation(getattr(cells, side)["js"], cells.oracle["fid"]) for cells in self.images[data])
        return mean_of_known(each)

    def severity_tau(self, data: str, path: str | None = None) -> float:
        """Kendall's tau to severity, mean over paths (or of one) and classes."""
        return mean_of_known(
            cells.severity_taus(own)
            for cells in self.images[data]
            for own in dict.fromkeys(cells.paths)
            if own in PATHS and path in (None, own)
        )

    def saturated(self, data: str) -> float:
        """The share of cells whose JS without smoothing is."""
        raw = self.joined(data, "carried", "js_raw")
        return float((raw[raw.isfinite()] > SATURATED).double().mean())

    def fid_gap(self, data: str) -> float:
        """The median difference of FID with and without rows, as a share."""
        kept, rows = self.joined(data, "carried", "fid"), self.joined(data, "oracle", "fid")
        return float(((kept - rows).abs() / rows.abs().clamp_min(1e-12)).median())

    def fid_holds(self, data: str) -> float:
        """How often the interval of FID holds that with rows; NaN of Records that have none."""
        if any("fid_low" not in cells.carried for cells in self.images[data]):
            return math.nan
        low, high = (self.joined(data, "carried", f"fid_{end}") for end in ("low", "high"))
        rows = self.joined(data, "oracle", "fid")
        return float(((low <= rows) & (rows <= high)).double().mean())

    def power(self, table: str, who: str, m: int | None = None, drift: str | None = None) -> float:
        """The share of drifts found at 5 %."""
        shares = []
        for record in self.tables[table]:
            sizes, drifts = list(record.config["new"]), list(record.details["drifts"])
            found = record.values[who] <= ALPHA
            rows = slice(None) if m is None else sizes.index(m)
            kind = slice(None) if drift is None else drifts.index(drift)
            shares.append(float(found[:, rows, ..., kind, :].double().mean()))
        return mean_of_known(shares)

    def level(self, table: str) -> float:
        """The share of tests at 5 % that find a drift where there is none."""
        return mean_of_known(
            float((record.values["no drift"] <= ALPHA).double().mean()) for record in self.tables[table]
        )

    def new_rows(self, table: str) -> list[int]:
        """How many new rows there were."""
        return list(self.tables[table][0].config["new"])

    def chain_off(self, strategy: str, bed: str, name: str) -> float:
        """The mean of |value / truth - 1| over chains and judged steps that were answered."""
        j = JUDGED.index(name)
        each = [(r.values["value"] / r.values["truth"] - 1).abs()[1:, j] for r in self.chains[strategy][bed]]
        return float(torch.cat(each).nanmean())

    def chain_holds(self, strategy: str, bed: str, name: str) -> float:
        """How often an interval holds the truth; a refusal holds nothing, "at least" promises its low end alone."""
        j, held = JUDGED.index(name), []
        for r in self.chains[strategy][bed]:
            low, high, truth = (r.values[key][:, j] for key in ("low", "high", "truth"))
            for i in range(1, len(truth)):
                said = r.details["verdicts"][i * len(JUDGED) + j]
                below, above = bool(low[i] <= truth[i]), bool(truth[i] <= high[i])
                held.append(said != "refused" and below and (said == "at least" or above))
        return mean_of_known(map(float, held))


def mean_of_known(values: Iterable[float]) -> float:
    """NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan
