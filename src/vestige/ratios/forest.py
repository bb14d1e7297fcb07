"""The ratio of a random forest (LFIW section 2.3, Proposition 1), for tables of mixed and 0/1 columns.

Extremely randomised trees (Geurts et al. 2006; scikit-learn's) tell p from q, both at half of the mass: each tree is
grown on a bootstrap drawn by weight, of twice as many rows as the smaller side has (its effective number, with
weights), so that about a third of its rows stay outside however unequal the sides are. A row's log-odds are the logit
of the mean share of p in its leaves, `clip` away from 0 and 1, made a log-ratio by Platt's map. The map is fitted on
out-of-bag log-odds, of each row from the trees that did not draw it.

`held_out_p_` and `held_out_q_` are out-of-bag log-ratios of the training rows, each half of them mapped by what the
other half fitted; the held-out figures are theirs ("raw": before the map). Neither is saved. `log_ratio` of a training
row also asks the trees that have seen it, and flatters. Where Platt finds no positive slope, r = 1: the report has
slope 0 and offset 0. A row that every tree has drawn counts as one without opinion, log-odds 0, and is reported.

Measured, log-loss on fresh rows in thousandths of a nat: above that of the true ratio (mean of 3 data sets, n = 500 a
side; N(0, I) and two columns of it at 0.7 with deviation 0.8; no ratio at all: 146 and 150), or the loss itself (one
data set, 300 rows a side of Covertype's 54 columns; q is p with each column shuffled by itself, or a Gaussian of p's
mean and covariance with the one-hot columns made so again; no ratio: 693).

    min_samples_leaf       1     3    10    30   Logistic (net)   Stack
    2-d Gaussians         48    18    10    11                8       4
    10-d Gaussians        24    16    11    13               30      27
    Covertype, shuffled  138   174   302   526              693     302
    Covertype, Gaussian  328   361   489   632              901     594

Leaves of one row serve tables best and smooth densities worst; the default lies between. Splits that try half of the
columns (`columns=0.5`) give 10 and 15 on the Gaussians at leaves of 3. Plain random forests (Breiman's), 200 trees with
leaves of 3: 39 against 11 on the 2-d Gaussians with one column a split, 175 and 329 against 177 and 357 on Covertype.

Deviations from LFIW: a forest in place of a network; balance by weights; Platt's map. A threshold lies at random
between two values of a column and is no value of a row; a leaf holds at least `min_samples_leaf` rows of a bootstrap.
As in scikit-learn, features are read in single precision. Its version 1.9 draws bootstraps by weight; earlier ones draw
evenly and weigh the rows that they drew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import option
from vestige.ratios.base import Ratio, Sample
from vestige.ratios.calibration import Affine, held_out_figures, platt, two_fold

CELLS = 2**20  # rows times trees that are looked up at once
LARGEST = torch.finfo(torch.float32).max


def grow(
    x: Float[Tensor, "n d"],
    from_p: Bool[Tensor, " n"],
    weights: Float[Tensor, " n"],
    **options: Any,  # noqa: ANN401 - scikit-learn has no types
) -> Any:  # noqa: ANN401
    """scikit-learn's forest with these options, on bootstraps drawn by weight."""
    from sklearn.ensemble import ExtraTreesClassifier  # imported late: it takes a second

    forest = ExtraTreesClassifier(bootstrap=True, n_jobs=None, **options)
    return forest.fit(x.float().numpy(), from_p.numpy(), sample_weight=weights.numpy())


def as_tensors(forest: Any) -> dict[str, Tensor]:  # noqa: ANN401 - scikit-learn has no types
    """The trees, padded to the largest. A leaf is its own child, so that a step more changes nothing."""
    grown = [member.tree_ for member in forest.estimators_]
    shape = len(grown), max(tree.node_count for tree in grown)
    left, right, feature = (np.zeros(shape, np.int32) for _ in range(3))
    threshold, share = np.zeros(shape), np.zeros(shape)
    for i, tree in enumerate(grown):
        nodes, leaf = np.arange(tree.node_count), tree.children_left < 0
        left[i, nodes] = np.where(leaf, nodes, tree.children_left)
        right[i, nodes] = np.where(leaf, nodes, tree.children_right)
        feature[i, nodes] = np.where(leaf, 0, tree.feature)
        threshold[i, nodes] = np.where(leaf, 0.0, tree.threshold)
        share[i, nodes] = tree.value[:, 0, 1]
    tables = {"left": left, "right": right, "feature": feature, "threshold": threshold, "share": share}
    depth = torch.tensor(max(int(tree.max_depth) for tree in grown))
    return {name: torch.from_numpy(table) for name, table in tables.items()} | {"depth": depth}


def leaf_shares(trees: dict[str, Tensor], x: Float[Tensor, "n d"]) -> Float[Tensor, "n trees"]:
    """The share of p in the leaf where each tree puts each row: float32 features against float64 thresholds."""
    count, size = trees["left"].shape
    root = torch.arange(count) * size  # of each tree in the flat tables
    left, right = ((trees[name] + root[:, None]).flatten() for name in ("left", "right"))
    feature, threshold = trees["feature"].long().flatten(), trees["threshold"].flatten()
    x, node = x.float(), root.expand(len(x), count)
    for _ in range(int(trees["depth"])):
        node = torch.where(x.gather(1, feature[node]) <= threshold[node], left[node], right[node])
    return trees["share"].flatten()[node]


def mean_share(
    trees: dict[str, Tensor], x: Float[Tensor, "n d"], counts: Bool[Tensor, "n trees"] | None = None
) -> Float[Tensor, " n"]:
    """The mean share over all trees, or over those that `counts` names; one half where it names none."""
    rows, means = max(1, CELLS // len(trees["left"])), []
    for start in range(0, len(x), rows):
        shares = leaf_shares(trees, x[start : start + rows])
        asked = torch.ones_like(shares) if counts is None else counts[start : start + rows].to(shares.dtype)
        number = asked.sum(1)
        means.append(torch.where(number > 0, (shares * asked).sum(1) / number.clamp_min(1), 0.5))
    return torch.cat(means) if means else x.new_zeros(0)


@dataclass(eq=False)
class Forest(Ratio):
    """Forest ratio, calibrated on out-of-bag votes."""

    trees: int = option(300, low=1)
    min_samples_leaf: int = option(3, low=1)  # rows of a bootstrap, each once
    columns: float = option(1.0, above=0, high=1)  # the share of the columns that each split tries, one at least
    clip: float = option(0.01, above=0, below=0.5)  # of vote shares, away from 0 and from 1

    trees_: dict[str, Tensor] = field(init=False, repr=False)
    map_: Affine = field(init=False, repr=False)

    def _fit(self, sample: Sample, seed: int) -> None:
        p, q, w_p, w_q = sample.p, sample.q, sample.w_p, sample.w_q
        for name, rows in (("p", p), ("q", q)):
            if float(rows.abs().max()) > LARGEST:
                checks.refuse(name, "Forest.fit", "within single precision", f"{float(rows.abs().max()):g}")
        x, weights = torch.cat([p, q]).cpu(), torch.cat([w_p, w_q]).cpu() / 2
        draws = min(len(x), round(2 * min(1 / float(w.square().sum()) for w in (w_p, w_q))))
        forest = grow(
            x,
            torch.arange(len(x)) < len(p),
            weights,
            n_estimators=self.trees,
            min_samples_leaf=self.min_samples_leaf,
            max_samples=draws,
            max_features=float(self.columns),
            random_state=rng.child_seed(seed, "forest") % 2**31,
        )
        self.trees_ = as_tensors(forest)
        outside = torch.ones(len(x), self.trees, dtype=torch.bool)
        for tree, drawn in enumerate(forest.estimators_samples_):
            outside[torch.from_numpy(drawn).long(), tree] = False
        share = mean_share(self.trees_, x, outside)
        self._calibrate(self._log_odds(share), weights, len(p), seed)
        never = int((~outside.any(1)).sum())
        self.report_ |= {
            "draws": draws,
            "depth": int(self.trees_["depth"]),
            "never_out_of_bag": never,
            "clip": self.clip,
            "clips": {"shares": int(((share < self.clip) | (share > 1 - self.clip)).sum())},
            "kept_of_p": "thresholds drawn at random between values of a column, and its share in each leaf",
            "warnings": [],
        }
        if never:
            self._caution(f"{never} rows are in the bag of every tree and have no held-out value of their own.")

    def _log_odds(self, share: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return share.clamp(self.clip, 1 - self.clip).logit()

    def _calibrate(self, raw: Float[Tensor, " n"], weights: Float[Tensor, " n"], n_p: int, seed: int) -> None:
        """Platt's map from all out-of-bag log-odds; and their held-out values, each half by the map of the other."""
        sides = [torch.arange(n_p), torch.arange(n_p, len(raw))]
        self.map_ = platt(*(raw[s] for s in sides), *(weights[s] for s in sides))
        mixed = [side[torch.randperm(len(side), generator=rng.fork(seed, "halves", i))] for i, side in enumerate(sides)]
        held_out = torch.zeros_like(raw)
        found = two_fold("platt", *(raw[rows] for rows in mixed), *(weights[rows] for rows in mixed))
        for rows, values in zip(mixed, found, strict=True):
            held_out[rows] = values
        self.held_out_p_, self.held_out_q_ = held_out[:n_p], held_out[n_p:]
        before, after = (held_out_figures(v[:n_p], v[n_p:], weights[:n_p], weights[n_p:]) for v in (raw, held_out))
        self.report_ |= {
            "converged": self.map_.converged,
            "held_out_loss": after["log_loss"],
            "held_out": after | {"raw": before},
            "calibration": {"slope": self.map_.slope, "offset": self.map_.offset},
        }

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return self.map_(self._log_odds(mean_share(self.trees_, x.cpu())))
