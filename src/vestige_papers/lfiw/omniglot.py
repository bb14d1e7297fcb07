"""The unit of LFIW Table 2 and Fig. 2: drawings of Omniglot, a DAGAN, weights for what it makes, seven classifiers.

Of the 20 drawings of each class 10 train, 5 validate and 5 test (the paper's 15/5/5 exceed 20), dealt by the seed. The
DAGAN learns from the training drawings, and makes `copies` of each. The classifier for the weights and those for the
classes have the network of App. C.4. Of the validation drawings half stop the former early, by log-loss, and half
calibrate it (Platt); its figures are taken on test drawings, which train nothing.

Two DAGANs (`lfiw.dagan`): one that makes pixels, as the paper's does, and one that moves those of its example.

Deviations. C.4 does not say what the binary classifier sees, or how much is generated: here single drawings, as in
section 3.1, so that a ratio says how much a drawing looks like any real one, and not whether it is of its class. What
it learns from is made by the same DAGAN with other noise. The rate falls along a cosine. Images are 28 x 28.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.core import checks, rng
from vestige.generators.pictures import pack
from vestige.ratios.calibration import Affine, platt
from vestige.runner.experiment import OnProgress
from vestige_papers.cdre.static import load
from vestige_papers.lfiw.augmentation import REAL, Weighed, outputs, train, training_sets, weigh
from vestige_papers.lfiw.dagan import DAGAN
from vestige_papers.lfiw.few_shot import FewShot

SHOWN, COLUMNS = 6, 10  # classes of Fig. 2, and drawings in each of its rows


@dataclass(frozen=True)
class Setting:
    """`dagan` is one of the presets `dagans`, set by the arms. `split`: drawings of a class that train, validate, test.

    `steps` are the DAGAN's, None for those of its preset; `epochs` are over real rows. With `validate` the drawings
    that validate are also those that test, to choose settings by.
    """

    dagans: tuple[str, ...] = ("small_pixels", "small")
    dagan: str = ""
    data: str = "omniglot"
    classes: int = 100
    split: tuple[int, int, int] = (10, 5, 5)
    side: int = 28
    steps: int | None = None
    copies: int = 10
    filters: int = 32
    blocks: int = 4
    epochs: int = 16
    judge_epochs: int = 8
    batch: int = 32
    lr: float = 3e-3
    min_ess: float = 0.1
    real_share: float = 0.5
    validate: bool = False


class Drawings(NamedTuple):
    """Images and labels, one class after another, as many of each."""

    x: Float[Tensor, "n h w"]
    y: Int64[Tensor, " n"]


def drawings(setting: Setting, seed: int) -> tuple[Drawings, Drawings, Drawings]:
    """To train, to validate and to test, of classes that the seed chooses."""
    source = load(setting.data)
    pooled, labels = torch.cat([source.train_x, source.test_x]), torch.cat([source.train_y, source.test_y])
    count, needed = torch.bincount(labels, minlength=len(source.names)), sum(setting.split)
    rich = (count >= needed).nonzero()[:, 0]
    if len(rich) < setting.classes:
        checks.refuse("classes", "lfiw-table2", f"at most {len(rich)}, those with {needed} drawings", setting.classes)
    noise = rng.fork(seed, "drawings")
    chosen = rich[torch.randperm(len(rich), generator=noise)[: setting.classes]]
    by_class = torch.argsort(labels, stable=True)
    first = count.cumsum(0) - count
    places = torch.stack([
        by_class[first[c] + torch.randperm(int(count[c]), generator=noise)[:needed]] for c in chosen.tolist()
    ])  # fmt: skip
    x = source.floats(pooled[places.flatten()]).unsqueeze(1)
    x = functional.interpolate(x, (setting.side, setting.side), mode="area").unflatten(0, places.shape).squeeze(2)
    y = torch.arange(setting.classes)[:, None].expand(places.shape)
    cut = zip(x.split(setting.split, 1), y.split(setting.split, 1), strict=True)
    train_rows, validate, test = (Drawings(a.flatten(0, 1), b.flatten()) for a, b in cut)
    return train_rows, validate, validate if setting.validate else test


@dataclass(frozen=True)
class Judge:
    """log p/q of drawings, by a calibrated classifier between real and generated ones."""

    net: FewShot
    affine: Affine
    log_losses: list[float]  # held out, epoch by epoch

    def log_ratio(self, x: Float[Tensor, "n h w"]) -> Float[Tensor, " n"]:
        """Calibrated."""
        return self.affine(logits(self.net, x))


def logits(net: FewShot, x: Float[Tensor, "n h w"]) -> Float[Tensor, " n"]:
    """The one output of a network."""
    return outputs(net, x).squeeze(1).double()


def fit_judge(real: Tensor, made: Tensor, held: tuple[Tensor, Tensor], setting: Setting, seed: int) -> Judge:
    """Proposition 1 with as many real rows as generated in each batch, so that its gamma is one.

    Every second row of both sides of `held` chooses the epoch, the others calibrate.
    """
    net = FewShot((setting.side,) * 2, 1, seed=seed, filters=setting.filters, blocks=setting.blocks)
    steps = max(len(real) // setting.batch, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=setting.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps * setting.judge_epochs)
    noise, best, log_losses = rng.fork(seed, "batches"), net, list[float]()
    target = torch.cat([torch.ones(setting.batch), torch.zeros(setting.batch)])
    for _ in range(setting.judge_epochs):
        net.train()
        for _ in range(steps):
            places = [torch.randint(len(side), (setting.batch,), generator=noise) for side in (real, made)]
            found = net(torch.cat([real[places[0]], made[places[1]]])).squeeze(1)
            optimizer.zero_grad()
            functional.binary_cross_entropy_with_logits(found, target).backward()
            optimizer.step()
            schedule.step()
        net.eval()
        p, q = (logits(net, side[::2]) for side in held)
        log_losses.append(float(functional.softplus(-p).mean() + functional.softplus(q).mean()) / 2)
        if log_losses[-1] == min(log_losses):
            best = copy.deepcopy(net)
    p, q = (logits(best, side[1::2]) for side in held)
    return Judge(best, platt(p, q, torch.ones_like(p), torch.ones_like(q)), log_losses)


class Unit(NamedTuple):
    """What a Record holds."""

    values: dict[str, Tensor]
    details: dict[str, Any]


def measure(setting: Setting, seed: int, on_progress: OnProgress) -> Unit:
    """Draw, train, weigh, train again."""
    real, validate, test = drawings(setting, seed)
    options: dict[str, Any] = dict(DAGAN.presets[checks.one_of(setting.dagan, DAGAN.presets, "dagan", "lfiw-table2")])
    options |= {} if setting.steps is None else {"steps": setting.steps}
    # What a poor DAGAN is worth is for this experiment to show, so that no collapse is warned of.
    dagan = DAGAN(shape=(setting.side, setting.side), collapse=0.0, **options)
    dagan.fit(
        real.x, real.y, seed=seed, tell=lambda share, words: on_progress(0.5 * share, f"{setting.dagan}: {words}")
    )
    drawn = {
        name: dagan.sample_from(real.x, each=each, seed=rng.child_seed(seed, name))
        for name, each in (("made", setting.copies), ("fit", 2), ("held", 1))
    }
    made = Drawings(drawn["made"], real.y.repeat_interleave(setting.copies))
    on_progress(0.55, f"{setting.dagan}: weights")
    judge = fit_judge(real.x, drawn["fit"], (validate.x, drawn["held"]), setting, rng.child_seed(seed, "judge"))
    weighed = weigh(judge.log_ratio(made.x), judge.log_ratio(test.x), setting.min_ess)
    values: dict[str, Tensor] = {}
    details: dict[str, Any] = {"diagnosis": weighed.diagnosis, "dagan": dict(dagan.report_)}
    details["judge"] = {"log_losses": judge.log_losses, "slope": judge.affine.slope, "offset": judge.affine.offset}
    details["kept"] = {"dagan": dagan.bytes(), "examples": real.x.numel()}  # a byte a pixel, as drawings are stored
    steps = max(setting.epochs * len(real.x) // setting.batch, 1)
    sets = training_sets(real, made, weighed.log_weights, setting.real_share, seed)
    for i, (row, rows) in enumerate(sets.items()):
        on_progress(0.6 + 0.4 * i / len(sets), f"{setting.dagan}: {row}")
        net = FewShot(
            (setting.side,) * 2, setting.classes, seed=rng.child_seed(seed, "classes"), filters=setting.filters,
            blocks=setting.blocks,
        )  # fmt: skip
        trained = train(net, rows, batch=setting.batch, steps=steps, lr=setting.lr, seed=seed)
        values[row] = (outputs(trained, test.x).argmax(1) == test.y).double().mean()
        if row == REAL:
            values |= ranking(outputs(trained, made.x).argmax(1) == made.y, weighed, setting)
    held_out = torch.cat([part.x.unflatten(0, (setting.classes, -1)) for part in (validate, test)], 1)
    details["grid"] = grid(held_out, made, weighed, setting)
    return Unit(values | weighed.facts, details)


def ranking(right: Tensor, weighed: Weighed, setting: Setting) -> dict[str, Tensor]:
    """How often what is made is called its class: all, and the quarters of each class with most and least weight."""
    order = weighed.log_weights.unflatten(0, (setting.classes, -1)).argsort(1, descending=True)
    ranked = right.double().unflatten(0, (setting.classes, -1)).gather(1, order)
    quarter = max(ranked.shape[1] // 4, 1)
    parts = {"all": ranked, "top": ranked[:, :quarter], "bottom": ranked[:, -quarter:]}
    return {f"label.{name}": part.mean() for name, part in parts.items()}


def grid(held_out: Float[Tensor, "k n h w"], made: Drawings, weighed: Weighed, setting: Setting) -> dict[str, Any]:
    """For some classes held-out drawings, then generated ones from the largest weight to the smallest."""
    shown = min(SHOWN, setting.classes)
    x = made.x.unflatten(0, (setting.classes, -1))
    order = weighed.log_weights.unflatten(0, (setting.classes, -1)).argsort(1, descending=True)
    columns = min(COLUMNS, held_out.shape[1], x.shape[1])
    places = torch.linspace(0, x.shape[1] - 1, columns).round().long()
    rows = [torch.stack([held_out[c, :columns], x[c, order[c, places]]]) for c in range(shown)]
    return pack(torch.stack(rows).flatten(0, 2))
