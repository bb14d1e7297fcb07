"""The settings of Farquhar and Gal, B.2 to B.5 and C.4 to C.8.1, by experiment and method.

    chosen = printed("split-mnist", "vcl")
    learner = vs.methods.build("vcl", stream, seed=seed, **chosen.fields)
    record = vs.run(stream, learner, seed=seed, epochs=chosen.epochs, batch_size=chosen.batch_size)

A name that ends in "-multi" is the experiment with a head a task: its stream trains over the "current" outputs and is
told the task at test time, and coresets are fitted head by head. The others have one head for all.

What the paper prints and we do not take, or does not print at all:
- initial variance 1e-6 (B.2). `PRINTED_LOG_VAR` is that number, and `build("vcl", stream, preset="paper",
  log_var=PRINTED_LOG_VAR)` runs it: variances that small make the first posterior a prior that no later task can move,
  so the accuracy matrix has one learnt task and zeros on the rest of the diagonal. VCL's authors, whom the section
  follows "where possible", start at a log-variance of -6, of which 10^-6 may be a misprint; so do we;
- samples of the posterior, in training and for a prediction: not printed; 10 and 100 are those of VCL's authors;
- coreset size of Split MNIST: B.3 lacks the number; 40 is that of section 6.2;
- epochs on a coreset: one full batch an epoch, so as many steps;
- VGR's training is VCL's but for its length on Permuted MNIST and the cap of its batches (C.4, C.5); with Monte Carlo
  dropout neither the batch (256 here) nor the width of the first fully connected layer (128) is printed;
- log-variances have the learning rate of the means (`variance_learning_rate=None`), as nothing else is printed: in 120
  steps none of them moves by more than 0.13, so that VCL is here an isotropic anchor, and its figures are those of one;
- EWC's batch: not printed; 256 is that of B.2. Its Fisher is a mean over 200 samples; the sum of A.1, at this learning
  rate and coefficient, diverges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from vestige.core.checks import one_of

Fields = dict[str, Any]

PRINTED_LOG_VAR = math.log(1e-6)
# More rows than a task of these experiments has: one batch is the training set (B.3).
WHOLE_TASK = 60_000


@dataclass(frozen=True)
class PrintedSetting:
    """What the protocol is given, and the fields of the method's configuration."""

    epochs: int
    batch_size: int
    fields: Fields


def _bayesian(
    epochs: int, batch_size: int, hidden: tuple[int, ...], coreset: int, fit: str
) -> dict[str, PrintedSetting]:
    """The three variants of section 6.2, which differ in nothing but the coreset and the prior."""
    plain: Fields = {"hidden": hidden, "learning_rate": 1e-3, "prior_std": 1.0, "log_var": -6.0}  # B.2
    plain |= {"train_samples": 10, "test_samples": 100, "variance_learning_rate": None}
    kept = plain | {"coreset": coreset, "coreset_sampler": "k_center", "coreset_fit": fit, "coreset_steps": epochs}
    variants = {"vcl": plain, "vcl_coreset": kept, "coreset_only": kept}
    return {method: PrintedSetting(epochs, batch_size, fields) for method, fields in variants.items()}


def _replay(epochs: int, batch_size: int, hidden: tuple[int, ...], generator: str) -> dict[str, PrintedSetting]:
    """VGR, whose training is VCL's, and its merged form (C.1), of which no number is printed."""
    plain = _bayesian(epochs, batch_size, hidden, 0, "together")["vcl"].fields
    fields = plain | _generated(generator)
    return {method: PrintedSetting(epochs, batch_size, fields) for method in ("vgr", "vgr_vcl")}


def _generated(generator: str) -> Fields:
    """6000 samples a class (C.4, C.5)."""
    cap = {"batch_cap": 30_000} if generator == "gan_conv" else {}  # C.5
    return {"replay": {"generator": generator, "preset": "paper", "samples_per_class": 6000}, **cap}


def _dropout() -> dict[str, PrintedSetting]:
    """C.8.1."""
    fields: Fields = {"net": "conv", "hidden": (128,), "dropout": 0.25, "l2": 0.01, "test_samples": 100}
    return {"vgr_mc_dropout": PrintedSetting(25, 256, fields | _generated("gan_conv"))}


def _ewc(hidden: tuple[int, ...]) -> dict[str, PrintedSetting]:
    """EWC in the form of Huszar (2018); B.3, and "in exactly the same way" B.4."""
    fields: Fields = {"hidden": hidden, "optimizer": "sgd", "learning_rate": 1e-2, "fisher_samples": 200, "lam": 10.0}
    # lam is "the coefficient of the regularization term": no factor 1/2 beside it.
    return {"ewc_huszar": PrintedSetting(20, 256, fields | {"half_penalty": False})}


PRESETS: dict[str, dict[str, PrintedSetting]] = {
    # B.2, C.4
    "permuted-mnist": _bayesian(100, 256, (100, 100), 200, "together") | _replay(120, 256, (100, 100), "gan_dense"),
    # B.3, C.5, C.8.1
    "split-mnist": _bayesian(120, WHOLE_TASK, (256, 256), 40, "together")
    | _ewc((256, 256))
    | _replay(120, WHOLE_TASK, (256, 256), "gan_conv")
    | _dropout(),
    # B.4
    "split-mnist-multi": _bayesian(120, WHOLE_TASK, (256, 256), 40, "per_task") | _ewc((256, 256)),
    # B.5
    "split-fashion-mnist": _bayesian(120, WHOLE_TASK, (200,) * 4, 40, "together") | _ewc((256,) * 4),
    "split-fashion-mnist-multi": _bayesian(120, WHOLE_TASK, (200,) * 4, 40, "per_task") | _ewc((256,) * 4),
}


def printed(preset: str, method: str) -> PrintedSetting:
    """The printed setting of `method` in the experiment `preset`; one that the paper did not run is refused."""
    methods = PRESETS[one_of(preset, PRESETS, "preset", "printed")]
    return methods[one_of(method, methods, "method", f"preset '{preset}'")]
