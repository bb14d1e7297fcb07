"""Golden numbers: what every method, ratio, metric and so on gives on tiny data, by the public API alone.

`KINDS` holds one `Kind` each: the names of its entries, and a pure function from a name to its numbers. They are stored
in `numbers.json` with the version of what was run, and `test_golden.py` compares. The data is made by numpy with fixed
seeds; networks have a few units and take a few steps, so that rounding on another processor does not grow.

    python tests/golden/cases.py --write ewc          # entries called "ewc", whatever their kind
    python tests/golden/cases.py --write methods      # all entries of a kind
    python tests/golden/cases.py --write              # everything

An entry is not replaced by other numbers unless its version has risen: `version` of the class (of the method, ratio,
generator, feature map or chain strategy, whose children inherit it), `VERSION` of the loop that runs it, or its line in
`VERSIONS` where there is neither. The first two are a part of the ids of Records.
"""

import argparse
import dataclasses
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import vestige as vs
from vestige_papers.cdre.drifts import integrated_divergence
from vestige_papers.lfiw import dagan as lfiw

FILE = Path(__file__).with_name("numbers.json")
RTOL, ATOL = 1e-4, 1e-6
# Wider relative tolerances, measured with the vector instructions of other processors. Biases before a batch
# normalisation have a gradient of rounding alone, which Adam makes as large as any other; a network that stops
# early may stop at another step; a penalty of gradients takes derivatives twice.
TOLERANCES = {
    "features/classifier": 0.02,
    "generation/run": 0.02,
    "chains/anchored kliep": 0.05,
    "generators/dagan": 0.05,
    "generators/wgan_gp": 2e-3,
    "ratios/kliep_net": 5e-3,
    "ratios/stack": 0.02,
}
Z = 1.959963984540054  # 95 %
# Versions of entries without a class of their own, as {"metrics/fid": 2}. What is not listed has version 1.
VERSIONS: dict[str, int] = {
    # 2: the standard error of FID is the delta method's, and halves are every other row.
    "metrics/fid": 2,
    "metrics/FID": 2,
    # 2: dynamics by squared error, errors over members and episodes, spreads for intervals.
    "policy/evaluate": 3,  # 3: the corrected value has a spread
    "policy/evaluate terminated": 3,  # 3: no interval where logged actions are replayed
    # 2: the standard error of FID; 3: the stack of version 3, intervals from a second fit; 5: single columns join the
    # permutation test; 6: errors of an interval are added by their squares; 7: the level is not shared with columns.
    "comparison/compare": 7,
    "comparison/compare weighted": 7,
    "comparison/compare standardised": 7,
}
# The loops that run the entries of a kind have versions of their own.
LOOPS = {"methods": vs.protocol, "generation": vs.generation}
# Options that may have another spelling: the first one that the class has is taken.
SPELLINGS = {
    "batch": ("batch", "batch_size"),
    "lr": ("lr", "learning_rate"),
    "critic_lr": ("critic_lr", "critic_learning_rate"),
    "judge_widths": ("judge_widths", "critic_widths", "discriminator_widths", "critic_hidden"),
    "judge_filters": ("judge_filters", "critic_filters", "discriminator_filters"),
}


class Kind(NamedTuple):
    """The entries of one kind: their names, the numbers of one, and the class of one (None where there is none)."""

    names: tuple[str, ...]
    numbers: Callable[[str], dict[str, Any]]
    subject: Callable[[str], Any] = lambda name: None


def spelled(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` under the names that the dataclass `kind` has for them."""
    known = {field.name for field in dataclasses.fields(kind)}
    return {next((s for s in SPELLINGS.get(k, ()) if s in known), k): v for k, v in options.items()}


def number(value: Any) -> float:
    """A number, or that of an estimate."""
    return float(getattr(value, "value", value))


def std_error(estimate: Any) -> float:
    """The standard error, from the interval at 95 % where it has no field of its own."""
    if hasattr(estimate, "std_error"):
        return math.nan if estimate.std_error is None else float(estimate.std_error)
    return float(estimate.high - estimate.low) / (2 * Z)


def interval(prefix: str, estimate: Any) -> dict[str, float]:
    """Value, low and high under a prefix."""
    return {f"{prefix}.{part}": float(getattr(estimate, part)) for part in ("value", "low", "high")}


def listed(values: Any) -> list[float]:
    """Any array as a flat list."""
    return torch.as_tensor(np.asarray(values)).double().flatten().tolist()


def sums(prefix: str, tensors: Iterable[torch.Tensor]) -> dict[str, float]:
    """Sum and sum of squares of all that is in `tensors`."""
    flat = torch.cat([t.detach().double().flatten() for t in tensors])
    return {f"{prefix}.sum": float(flat.sum()), f"{prefix}.sum_of_squares": float(flat.square().sum())}


# Data.


def normal(rows: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, d))


def two_gaussians(n_p: int = 120, n_q: int = 90, d: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """p at +0.4 in every coordinate, q at -0.4 and a little wider."""
    return torch.from_numpy(normal(n_p, d, 0) + 0.4), torch.from_numpy(1.2 * normal(n_q, d, 1) - 0.4)


def weights_of(rows: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(0.2, 1.8, size=rows))


def images(n_classes: int, per_class: int, side: int) -> vs.data.DataSet:
    """Noise with a bright spot for each class."""
    generator, tests = np.random.default_rng(7), 10

    def rows(each: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = np.tile(np.arange(n_classes), each)
        x = generator.integers(0, 60, size=(len(y), side * side))
        for shift in range(3):
            x[np.arange(len(y)), (5 * y + shift) % side**2] += 180
        return torch.from_numpy(x.astype(np.uint8)).reshape(-1, side, side), torch.from_numpy(y)

    names = tuple(f"class {c}" for c in range(n_classes))
    return vs.data.DataSet("golden", *rows(per_class), *rows(tests), names, "none", "made up")


def pixels(n_classes: int, per_class: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    data = images(n_classes, per_class, side)
    return data.train_x.float() / 255, data.train_y


# Methods.

HIDDEN = {"hidden": (12,)}
PULL = HIDDEN | {"lam": 1000.0}
FEW = {"per_class": 3}
TEN = {"memory": {"per_class": None, "total": 10}}
VARIATIONAL = HIDDEN | {"train_samples": 2, "test_samples": 3, "fit_steps": 3}
CORESET = VARIATIONAL | {"coreset": 4, "coreset_steps": 2}
GAN = {
    "replay": {
        "generator": "gan_dense",
        "options": {"widths": (8,), "critic_widths": (8,), "epochs": 2, "batch_size": 20},
        "samples_per_class": 8,
    }
}
VAE = {"encoder": (8,), "decoder": (8, 8), "codes": 3, "steps": 12, "batch_size": 20, "collapse": 0.0}
REPLAY = HIDDEN | {"replay": {"options": VAE, "samples_per_class": 8}}
METHODS = {
    "agem": HIDDEN | TEN,
    "coreset_only": CORESET | {"variance_learning_rate": 0.5},
    "der_pp": HIDDEN | {"total": 10},
    "dgr": REPLAY,
    "ensemble": HIDDEN | {"members": 3},
    "er": HIDDEN | {"memory": {"total": 10}},
    "ewc": PULL,
    "ewc_huszar": PULL,
    "ewc_huszar_s": PULL | {"memory": FEW},
    "ewc_pp": PULL,
    "ewc_pp_s": PULL | {"memory": FEW | {"replay": "beside"}},
    "ewc_s": PULL | TEN,
    "fecam": {},
    "gdumb": HIDDEN | {"total": 10, "epochs": 3},
    "gem": HIDDEN | TEN,
    "icarl": HIDDEN | TEN,
    "icarl_hb1": HIDDEN | {"memory": FEW},
    "joint": HIDDEN,
    "lwf": HIDDEN,
    "mc_dropout": HIDDEN | {"test_samples": 3},
    "ncm": {},
    "pi": PULL,
    "pi_s": PULL | {"memory": FEW | {"replay": "mixed"}},
    "rwalk": PULL,
    "rwalk_s": PULL | {"memory": FEW | {"replay": "finetune", "finetune_epochs": 3}},
    "slda": {},
    "vanilla": HIDDEN,
    "vanilla_s": HIDDEN | TEN,
    "vcl": VARIATIONAL,
    "vcl_coreset": CORESET | {"coreset_fit": "per_task"},
    "vgr": VARIATIONAL | GAN,
    "vgr_mc_dropout": HIDDEN | {"test_samples": 3} | GAN,
    "vgr_vcl": VARIATIONAL | GAN,
    "weighted_replay": REPLAY
    | {"condition": "task", "resample": True, "min_rows": 40, "chain_samples": 60, "ess": 0.6},
}


def method_numbers(name: str) -> dict[str, Any]:
    """Three tasks of two classes: the accuracies, the uncertainty, the weights at the end, and some scores."""
    stream = vs.data.split(images(6, 40, 6), 2)
    fields = spelled(vs.methods.METHODS[name].default_config(), METHODS[name])
    if "replay" in fields:
        generator = vs.generators.GENERATORS[fields["replay"].get("generator", "vae")]
        fields["replay"] = fields["replay"] | {"options": spelled(generator, fields["replay"]["options"])}
    learner = vs.methods.build(name, stream, seed=2, **fields)
    record = vs.run(stream, learner, seed=2, batch_size=20, uncertainty=learner.probabilities)
    rows = torch.from_numpy(np.random.default_rng(3).random((3, 6, 6), dtype=np.float32))
    uncertainty = {key: listed(value) for key, value in record.values.items() if value.numel() <= 9}
    return {
        "accuracy": listed(record.R),
        **sums("parameters", learner.net.parameters()),
        "scores": listed(learner.predict(rows)),
        **uncertainty,
    }


# Ratios. An entry is called by its class, and by its options where there are several of one class.

RATIOS = {
    "bootstrap": lambda r: r.Bootstrap(r.Logistic(kind="linear"), 4),
    "bregman": lambda r: r.Bregman(steps=20),
    "bridge": lambda r: r.Bridge(r.Logistic(kind="linear"), waymarks=2),
    "fgan": lambda r: r.FGANRatio(steps=20),
    "fgan kl": lambda r: r.FGANRatio(steps=20, divergence="kl"),
    "fgan pearson": lambda r: r.FGANRatio(steps=20, divergence="pearson"),
    "forest": lambda r: r.Forest(trees=15),
    "kliep": lambda r: r.KLIEP(max_centres=20),
    "kliep_net": lambda r: r.KLIEPNet(steps=20),
    "lsif": lambda r: r.LSIF(steps=20),
    "logistic": lambda r: r.Logistic(steps=20),
    "logistic linear": lambda r: r.Logistic(kind="linear"),
    "logistic quadratic": lambda r: r.Logistic(kind="quadratic"),
    "logistic platt": lambda r: r.Logistic(kind="quadratic", calibration="platt"),
    "rulsif": lambda r: r.RULSIF(max_centres=20),
    "stack": lambda r: r.Stack(max_steps=20, min_steps=1, wide=4, wide_epochs=1),
    "ulsif": lambda r: r.ULSIF(max_centres=20),
}
POINTS = torch.tensor([[0.0, 0.0], [0.8, 0.8], [-0.8, -0.8], [1.0, -1.0], [0.2, 1.5]], dtype=torch.float64)


def ratio_numbers(name: str) -> dict[str, Any]:
    """Log-ratios at fixed points and held-out means, without and with weights; or one of the functions."""
    p, q = two_gaussians()
    if name == "auto":
        return {"log_ratio": listed(vs.ratios.auto(p, q, seed=2).fit(p, q, seed=2).log_ratio(POINTS))}
    if name == "permutation_test":
        near = vs.ratios.permutation_test(p, q + 0.6, n=40, seed=2)
        return {"statistic": near.statistic, "p_value": near.p_value, "null.mean": float(near.null.mean())}
    found = {}
    for label, options in (("", {}), ("weighted.", {"p_weights": weights_of(len(p), 4)})):
        ratio = RATIOS[name](vs.ratios).fit(p, q, seed=2, **options)
        found[f"{label}log_ratio"] = listed(ratio.log_ratio(POINTS))
        found[f"{label}mean_log_ratio_p"] = float(ratio.log_ratio(p).mean())
        for side in ("held_out_p_", "held_out_q_"):
            if getattr(ratio, side, None) is not None:
                found[f"{label}{side}mean"] = float(getattr(ratio, side).mean())
    return found


# Metrics.

MATRIX = np.array([[0.9, 0.2, 0.3], [0.7, 0.8, 0.1], [0.75, 0.6, 0.85]])
REFERENCE, BASELINE = np.array([0.95, 0.9, 0.8]), np.array([0.25, 0.15, 0.2])
# What a function of the matrix takes beside it.
BESIDE: dict[str, tuple[np.ndarray, ...]] = {
    "average_accuracy": (),
    "average_intransigence": (REFERENCE,),
    "backward_transfer": (),
    "backward_transfer_per_task": (),
    "forgetting": (),
    "forgetting_per_task": (),
    "forward_transfer": (BASELINE,),
    "forward_transfer_per_task": (BASELINE,),
    "intransigence": (REFERENCE,),
    "intransigence_per_task": (REFERENCE,),
    "negative_backward_transfer": (),
    "negative_forward_transfer": (BASELINE,),
    "positive_backward_transfer": (),
    "positive_forward_transfer": (BASELINE,),
}
CALLS: dict[str, list[dict[str, Any]]] = {
    "fid": [{}, {"extrapolate": True}, {"std_error": True}],
    "kid": [{"form": "moments"}, {"form": "blocks"}],
    "mmd": [{}, {"bandwidth": 1.5}, {"kernel": "polynomial"}],
}
ACCUMULATORS: dict[str, Callable[[], Any]] = {
    "FID": lambda: vs.metrics.FID(groups=4),
    "InceptionScore": lambda: vs.metrics.InceptionScore(groups=4),
    "KID": lambda: vs.metrics.KID(groups=4),
    "MMD": lambda: vs.metrics.MMD(bandwidth=1.5, frequencies=64, groups=4),
    "PRD": lambda: vs.metrics.PRD(torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None].repeat(1, 3)),
    "PRDC": lambda: vs.metrics.PRDC(),
}
ANYTIME = ("anytime", "average_anytime", "min_acc", "stability_gap", "wc_acc")
CURVE = np.array([[0.5, np.nan], [0.9, np.nan], [0.4, 0.6], [0.8, 0.7]])
METRICS = (
    *BESIDE,
    *ANYTIME,
    "summary",
    *CALLS,
    "prd",
    "precision_recall_density_coverage",
    "inception_score",
    *ACCUMULATORS,
)


def metric_numbers(name: str) -> dict[str, Any]:
    """A metric without and with weights; one of the matrix for both directions, after two tasks and after three."""
    p, q = two_gaussians(80, 60, 3)
    p_weights, q_weights = weights_of(80, 5), weights_of(60, 6)
    found: dict[str, Any] = {}
    if name in BESIDE:
        function = getattr(vs.metrics, name)
        for k in (2, 3):
            found[f"after {k}"] = listed(function(MATRIX, *BESIDE[name], k))
            if name != "average_accuracy":
                found[f"after {k}.down"] = listed(function(MATRIX, *BESIDE[name], k, better="down"))
        return found
    if name in ANYTIME:
        result = getattr(vs.metrics, name)(CURVE, [0, 0, 1, 1])
        return result if isinstance(result, dict) else {"value": result}
    if name == "summary":
        summary = vs.metrics.summary(MATRIX, REFERENCE, BASELINE)
        return {key: listed(getattr(summary, key)) for key in summary.QUANTITIES}
    for label, weights in (("", {}), ("weighted.", {"p_weights": p_weights, "q_weights": q_weights})):
        if name in CALLS:
            for i, options in enumerate(CALLS[name]):
                found |= scored(f"{label}{i}", getattr(vs.metrics, name)(p, q, **options, **weights))
        elif name == "prd":
            found |= scored(label + "prd", vs.metrics.prd(p, q, clusters=6, runs=2, **weights))
        elif name == "precision_recall_density_coverage":
            found |= scored(label + "k=3", vs.metrics.precision_recall_density_coverage(p, q, k=3, **weights))
        elif name == "inception_score":
            own = {"weights": q_weights} if weights else {}
            for splits in (1, 3):
                options = {"kind": "logits", "splits": splits}
                found |= scored(f"{label}splits={splits}", vs.metrics.inception_score(q, **options, **own))
        else:
            rows = (p.softmax(1), q.softmax(1)) if name == "InceptionScore" else (p, q)
            sides = zip(rows, (p_weights, q_weights) if weights else (None, None), strict=True)
            one, other = (ACCUMULATORS[name]().update(x, w) for x, w in sides)
            found |= scored(label + "both", one.compute() if name == "InceptionScore" else one.compute(other))
    return found


def scored(prefix: str, result: Any) -> dict[str, Any]:
    """The numbers of a metric's result."""
    if hasattr(result, "f8"):  # precision and recall along a curve
        alike = next(value for key, value in vars(result).items() if key.startswith("same"))
        names: tuple[str, ...] = ("f8", "f1_8")
        found = {f"{prefix}.{side}": listed(getattr(result, side)[::200]) for side in ("precision", "recall")}
        found |= {f"{prefix}.{key}.same": number(alike[key]) for key in names}
    elif hasattr(result, "coverage"):
        names, found = ("precision", "recall", "density", "coverage"), {}
    else:
        return {f"{prefix}.value": number(result), f"{prefix}.std_error": std_error(result)}
    for key in names:
        value = getattr(result, key)
        error = std_error(value) if hasattr(value, "value") else float(result.std_error[key])
        found |= {f"{prefix}.{key}": number(value), f"{prefix}.{key}.std_error": error}
    return found


# Divergences.

FAMILY = (
    *("kl", "reverse_kl", "js", "hellinger2", "pearson_chi2", "neyman_chi2", "total_variation", "jeffreys"),
    *("alpha(0.5)", "alpha(1.5)", "alpha(-0.5)"),
)
BREGMAN = ("squared", "kl", "binary_kl")
BOUNDS = ("donsker_varadhan", "bregman")
LOG_R = torch.tensor([-2.0, -0.5, 0.0, 0.3, 1.5], dtype=torch.float64)


def divergence_numbers(name: str) -> dict[str, Any]:
    """One of the family: every way to estimate it, its maps at fixed log-ratios, its closed form and its bound."""
    d = vs.divergences
    p, q = (torch.from_numpy(0.8 * normal(n, 1, seed)[:, 0]) for n, seed in ((200, 11), (150, 12)))
    on_p, on_q = 0.5 * p + 0.1, 0.5 * q - 0.1  # some log-ratios, small enough for every member
    both = {"p_weights": weights_of(200, 13), "q_weights": weights_of(150, 14)}
    if name == "donsker_varadhan":
        plain, weighted = d.donsker_varadhan(on_p, on_q), d.donsker_varadhan(on_p, on_q, **both)
        return {"plain": number(plain), "plain.std_error": std_error(plain), "weighted": number(weighted)}
    if name == "bregman":
        found = {}
        for potential in BREGMAN:
            found[f"{potential}.loss"] = float(d.bregman_loss(potential, on_p, on_q))
            found[f"{potential}.divergence"] = d.bregman_divergence(potential, on_q, 0.5 * on_q)
            weights = {"q_weights": both["q_weights"]}
            found[f"{potential}.weighted"] = d.bregman_divergence(potential, on_q, 0.5 * on_q, **weights)
        return found
    member, found = d.get(name), {}
    ways = {
        "both": ((on_q, on_p), {}),
        "weighted": ((on_q, on_p), both),
        "q": ((on_q,), {}),
        "q.light": ((on_q,), {"form": "light"} if member.light is not None else {}),
        "p": ((None, on_p), {}),
        "normalised": ((on_q, on_p), {"normalise": True}),
        "influence": ((on_q, on_p), {"error": "influence", "level": 0.9}),
        "bootstrap": ((on_q, on_p), {"error": "bootstrap", "n_boot": 50}),
    }
    for label, (args, options) in ways.items():
        found |= interval(label, d.estimate(name, *args, on_refusal="nan", **options))
    found |= {"f": listed(member.f(LOG_R)), "slope": listed(member.slope(LOG_R))}
    critic = [member.activation(x) for x in (on_p, on_q)]
    found["conjugate"] = listed(member.conjugate(member.activation(LOG_R)))
    bound = d.f_bound(name, *critic)
    found |= {"bound": number(bound), "bound.std_error": std_error(bound)}
    one = d.Gaussian(torch.tensor([0.0, 0.2]).double(), torch.tensor([[1.0, 0.2], [0.2, 0.8]]).double())
    other = d.Gaussian(torch.tensor([0.3, 0.0]).double(), torch.tensor([[1.1, 0.0], [0.0, 1.0]]).double())
    found["gaussian"] = d.gaussian_divergence(name, one, other)
    box = ([-6.0, -6.0], [6.0, 6.0])
    found["integrated"] = integrated_divergence(name, one.log_prob, other.log_prob, *box, points=61)
    return found


# Weights.

WEIGHTS = (
    *("augment", "clip", "diagnose", "ess", "expectation", "flatten", "from_log_ratio", "generated_weights"),
    *(
        "mass_per_row",
        "max_share",
        "mean_weight",
        "pareto_smooth",
        "resample",
        "self_normalise",
        "tail_index",
        "temper",
        "weighted_loss",
    ),
)


def weight_numbers(name: str) -> dict[str, Any]:
    """One function of 60 log weights."""
    w = vs.weights
    log_w = torch.from_numpy(1.3 * normal(60, 1, 21)[:, 0] - 0.5)
    values = torch.from_numpy(normal(60, 2, 22))
    if name == "generated_weights":
        return {f"min_ess={least}": listed(w.generated_weights(log_w, least)[:8]) for least in (None, 0.6)}
    if name in ("ess", "mass_per_row", "max_share", "mean_weight", "tail_index"):
        return {"value": number(getattr(w, name)(log_w))}
    if name in ("from_log_ratio", "self_normalise"):
        return {"log_weights": listed(getattr(w, name)(log_w)[:8])}
    if name == "flatten":
        return {f"alpha={alpha}": listed(w.flatten(log_w, alpha)[:8]) for alpha in (0.0, 0.5)}
    if name == "clip":
        return {f"beta={beta}": listed(w.clip(log_w, beta)[:8]) for beta in (0.0, 0.7)}
    if name == "temper":
        found = w.temper(log_w, 0.6)
        return {"log_weights": listed(found.log_weights[:8]), "alpha": found.alpha, "ess": found.ess_fraction}
    if name == "pareto_smooth":
        smooth = w.pareto_smooth(log_w)
        return {"k": number(smooth.k), "log_weights": listed(smooth.log_weights.sort().values[-12:])}
    if name == "diagnose":
        said = w.diagnose(log_w, accuracy=0.8, log_loss=0.5, ece=0.05)
        keys = ("n", "ess", "ess_fraction", "mean_weight", "max_share", "pareto_k")
        return {key: number(getattr(said, key)) for key in keys} | {"warnings": float(len(said.warnings))}
    if name == "expectation":
        found = {}
        for label, options in (
            ("normalised", {}),
            ("plain", {"normalise": False, "interval": 0.8}),
            ("bootstrap", {"method": "bootstrap", "n_boot": 50}),
        ):
            said = w.expectation(values, log_w, **options)
            found |= {f"{label}.{part}": listed(getattr(said, part)) for part in ("value", "low", "high")}
        return found
    if name == "resample":
        return {kind: listed(w.resample(10, log_w, 3, method=kind)) for kind in ("systematic", "multinomial")}
    real = (torch.from_numpy(normal(20, 2, 23)), torch.arange(20) % 3)
    joined = w.augment(real, (values, torch.arange(60) % 3), log_w, real_share=0.4)
    batches = list(joined.batches(8, 3, seed=5))
    if name == "augment":
        first = {"batch.x": listed(batches[1].x.sum(0)), "batch.weights": listed(batches[1].weights)}
        return {"weights": listed(joined.weights[15:30]), "real": joined.n_real, "total": sum(joined.weights)} | first
    return {"losses": [float(w.weighted_loss(batch.x[:, 0].float(), batch.weights)) for batch in batches]}


# Chains. An entry is "strategy estimator".

FAST = {"folds": 2, "epochs": 2, "warm_epochs": 1, "min_steps": 15, "decays": (0.5,), "wide": 4, "wide_epochs": 1}
SHORT = {"hidden": (8,), "first_epochs": 8, "epochs": 4, "batch": 50}
CHAINS = (
    *(f"anchored {e}" for e in ("stack", "kliep", "logistic", "quadratic", "lsif", "ulsif", "fgan")),
    *(f"keyframe {e}" for e in ("stack", "quadratic", "ulsif")),
    *(f"every-step {e}" for e in ("kliep", "logistic", "lsif", "fgan")),
    "vestige quadratic",
)
SLOW_CHAINS = ("anchored kliep", "anchored logistic", "anchored lsif", "anchored fgan")
CHAIN_SEEDS = {"anchored kliep": 2, "anchored lsif": 3, "every-step kliep": 2}  # of little rounding


def chain_numbers(name: str) -> dict[str, Any]:
    """Three steps, the second with a second task unless slow: four divergences each, then log-ratios and weights."""
    strategy, estimator = name.split()
    short = {"every-step": SHORT, "vestige": {"folds": 2}}
    options = spelled(vs.chains.STRATEGIES[strategy], short.get(strategy, FAST))
    names = ("kl", "js", "reverse_kl", "hellinger2")
    chain = vs.Chain(strategy, estimator=estimator, names=names, **options)
    found: dict[str, Any] = {}
    for step in (1, 2, 3):
        born = {"a": 1} if name in SLOW_CHAINS else {"a": 1, "b": 2}
        real = {task: normal(120, 2, 30 + at) + 2 * at for task, at in born.items() if at == step}
        model = {
            task: (1 - 0.05 * (step - at)) * normal(120, 2, 40 + 3 * step + at) + 2 * at + 0.15 * (step - at + 1)
            for task, at in born.items()
            if at <= step
        }
        chain.step(real, model, seed=CHAIN_SEEDS.get(name, 9))
        for row in chain.divergences(names).to_dict("records"):
            label = f"step {step}.{row['task']}.{row['divergence']}"
            found[label] = [float(row[part]) for part in ("value", "low", "high")]
    found["log_ratio"] = listed(chain.log_ratio(POINTS + 2, "a"))
    found["weights"] = listed(chain.weights(chain.tasks[-1])[:6])
    return found


# Generators. An entry is called by its registered name, and by its options where there are several.

# Rates and an average by which a few steps move the samples: the critic's loss must show in them.
RATES = {"lr": 5e-3, "critic_lr": 2e-2, "average": 0.5}
ADVERSARIAL = {"hidden": (12, 12), "critic_hidden": (12, 12), "codes": 4, "batch": 16, "steps": 4} | RATES
PER_CLASS = {"epochs": 3, "batch": 16, "lr": 5e-3}
GENERATORS = {
    "copula": {},
    "fgan": ADVERSARIAL,
    "fgan kl": ADVERSARIAL | {"divergence": "kl"},
    "fgan reverse_kl": ADVERSARIAL | {"divergence": "reverse_kl"},
    "gan_conv": PER_CLASS | {"filters": (4, 2), "judge_filters": (2, 4)},
    "gan_dense": PER_CLASS | {"widths": (12, 12), "judge_widths": (12,)},
    "gan_dense averaged": PER_CLASS | {"widths": (12,), "judge_widths": (12,), "average": 0.9, "output": "linear"},
    "mixture": {},
    "trees": {},
    "vae": {"codes": 3, "encoder": (12,), "decoder": (12, 12), "batch": 16, "steps": 10},
    "vae gaussian": {
        **{"codes": 3, "encoder": (12,), "decoder": (12, 12), "batch": 16, "steps": 10},
        **{"likelihood": "gaussian", "pairs": False},
    },
    "wgan": ADVERSARIAL,
    "wgan_gp": ADVERSARIAL | {"critic_lr": 5e-3, "steps": 3},
}
DAGAN = {"filters": (4, 6), "critic_filters": (4, 6), "codes": 3, "batch": 8, "steps": 4, "collapse": 0.0} | RATES


def generator_numbers(name: str) -> dict[str, Any]:
    """Two conditions learnt one after the other, and what is drawn of each."""
    x, y = pixels(2, 60 if name in ("copula", "mixture", "trees") else 24, 8)  # a density needs fifty
    found: dict[str, Any] = {}
    if name == "dagan":
        dagan = lfiw.DAGAN(shape=(8, 8), **spelled(lfiw.DAGAN, DAGAN)).fit(x, y, seed=3)
        return drawn("of two", dagan.sample_from(x[:2], each=3, seed=4))
    kind = name.split()[0]
    options = {"shape": (8, 8), "conditions": 2, "collapse": 0.0} | GENERATORS[name]
    generator = vs.generators.build(kind, **spelled(vs.generators.GENERATORS[kind], options))
    for task in (0, 1):
        generator.fit(x[y == task], task, seed=5 + task)
        for known in range(task + 1):
            found |= drawn(f"after {task}.of {known}", generator.sample(6, known, seed=5))
    return found


def drawn(prefix: str, rows: torch.Tensor) -> dict[str, Any]:
    """Sums and some values of generated rows."""
    return sums(prefix, [rows]) | {f"{prefix}.some": listed(rows.flatten(1)[:2, 2:60:12])}


# Feature maps. "pretrained" has no entry: its weights are an extra package, which may be absent.

AUTOENCODER = {"dims": 3, "encoder": (12,), "decoder": (12,), "noise": 0.005, "epochs": 2, "batch_size": 15}
FEATURES = {
    "classifier": {"dims": 4, "epochs": 2, "batch_size": 10, "lr": 1e-5},
    "cvae": AUTOENCODER,
    "identity": {},
    "pca": {"dims": 4},
    "pca whitened": {"dims": 4, "whiten": True},
    "random": {"dims": 4},
    "vae": AUTOENCODER,
}


def feature_numbers(name: str) -> dict[str, Any]:
    """Codes of held-out rows after a fit, and after an update; and how far they moved."""
    x, y = pixels(3, 20, 6)
    x = x + torch.from_numpy(np.random.default_rng(8).normal(scale=0.02, size=x.shape)).float()
    kind = name.split()[0]
    options = spelled(vs.features.FEATURES[kind], FEATURES[name])
    features = vs.features.build(kind, **options).fit(x[:40], y[:40], seed=2)
    before = features.copy()
    found: dict[str, Any] = {"fit": listed(features.transform(x[57:60])[:, :4])}
    features.update(x[40:], x[:20], y_new=y[40:], y_generated=y[:20], seed=3)
    found["update"] = listed(features.transform(x[57:60])[:, :4])
    found["drift"] = vs.features.code_drift(before, features, x[50:])
    if kind != "classifier":  # it needs labels, which are not taken here
        real = {task: x[y == task][:10] for task in range(3)}
        held = {task: x[y == task][10:] for task in range(3)}
        found["drift_by_step"] = vs.features.drift_by_step(vs.features.build(kind, **options), real, real, held, seed=4)
    return found


# Comparison.

COMPARISONS = ("compare", "compare weighted", "compare standardised", "weigh", "weigh tempered", "weigh bootstrap")


def comparison_numbers(name: str) -> dict[str, Any]:
    """Every line of a comparison with a quadratic ratio; weights and what they are worth."""
    p, q = two_gaussians(150, 130, 3)
    call, _, option = name.partition(" ")
    estimator = vs.ratios.Logistic(kind="quadratic", ridge=1e-2)
    if call == "compare":
        options = {"weighted": {"q_weights": weights_of(130, 15)}, "standardised": {"standardise": True}, "": {}}[
            option
        ]
        said = vs.compare(p, q, estimator=estimator, seed=6, **options)
        found: dict[str, Any] = {"p_value": said.p_value, "ess": said.diagnosis.ess}
        for key, estimate in said.divergences.items():
            found |= interval(key, estimate)
        lines = said.metrics.values() if isinstance(said.metrics, Mapping) else said.metrics
        for line in lines:
            found |= interval(line.name, line)
        return found
    options = {"tempered": {"min_ess": 0.8}, "bootstrap": {"bootstrap": 4}, "": {}}[option]
    weighed = vs.weigh(p, q, estimator=estimator, seed=6, **options)
    found = {"weights": listed(weighed.weights[:8]), "alpha": weighed.alpha, "sum": float(weighed.weights.sum())}
    found |= {"ess": weighed.final.ess, "mean_weight": weighed.diagnosis.mean_weight}
    return found | ({} if weighed.interval is None else {"interval": listed(weighed.interval[:4])})


# Generators on a stream.


def generation_numbers(name: str) -> dict[str, Any]:
    """Two tasks: the matrices of both views, and what follows from them."""
    data = images(4, 110, 6)
    rates = spelled(vs.features.FEATURES["classifier"], FEATURES["classifier"])
    judge = vs.features.build("classifier", **rates).fit(data.train_x.float() / 255, data.train_y, seed=1)
    options = {"shape": (6, 6), "conditions": 4, "collapse": 0.0} | GENERATORS["vae"]
    generator = vs.generators.build("vae", **spelled(vs.generators.GENERATORS["vae"], options))
    chain = {"estimator": "quadratic", "folds": 2, "names": ("js", "kl")}
    features, stream = vs.features.build("pca", dims=3), vs.data.split(data, 2)
    record = vs.generation.run(stream, generator, judge, features=features, chain=chain, samples=100, seed=2)
    found = {key: listed(matrix) for key, matrix in record.matrices.items()}
    found |= {key: listed(value) for key, value in record.values.items()}
    for key in ("fid", "labels", "js"):
        found[f"forgetting.{key}"] = vs.generation.forgetting(record, key)
        found[f"intransigence.{key}"] = vs.generation.intransigence(record, key)
    return found | {"agreement": vs.generation.agreement(record, "fid", "js")}


# Off-policy evaluation.

POLICIES = ("evaluate", "evaluate terminated", "GaussianPolicy")


def policy_numbers(name: str) -> dict[str, Any]:
    """A damped rotation under a linear policy, 40 episodes of 6 steps: every estimate for another policy."""
    behaviour = vs.policy.GaussianPolicy((np.array([[0.0, -0.2]]),), (np.array([0.0]),), np.log([0.5]))
    target = vs.policy.GaussianPolicy((np.array([[0.1, -0.5]]),), (np.array([0.1]),), np.log([0.4]))
    if name == "GaussianPolicy":
        net = vs.policy.GaussianPolicy.initial(
            2, 1, hidden=(4,), seed=3, low=torch.tensor([-0.5]), high=torch.tensor([0.5])
        )
        s = torch.from_numpy(normal(5, 2, 51)).float()
        actions = net.act(s, generator=torch.Generator().manual_seed(0))
        return {"actions": listed(actions), "log_prob": listed(net.log_prob(s, actions)), "mean": listed(net.mean(s))}
    episodes, steps, generator = 40, 6, np.random.default_rng(52)
    s = np.array([1.0, 0.0]) + 0.3 * generator.normal(size=(episodes, 2))
    columns: dict[str, list[np.ndarray]] = {"s": [], "a": [], "r": [], "after": []}
    for _ in range(steps):
        a = s @ np.array([[0.0], [-0.2]]) + 0.5 * generator.normal(size=(episodes, 1))
        after = s @ np.array([[0.9, -0.2], [0.2, 0.9]]) + a @ np.array([[0.0, 0.5]])
        after = after + 0.1 * generator.normal(size=(episodes, 2))
        reward = -((s**2) @ np.array([1.0, 0.3]) + 0.1 * (a**2).sum(1))
        for key, value in zip(columns, (s, a, reward, after), strict=True):
            columns[key].append(value)
        s = after
    s, a, r, after = (
        np.stack(column, 1).reshape(episodes * steps, *column[0].shape[1:]) for column in columns.values()
    )
    log_probs = behaviour.log_prob(torch.from_numpy(s), torch.from_numpy(a))
    last = np.arange(episodes * steps) % steps == steps - 1
    ends = {"terminated": last & (after[:, 0] < 0.5)} if name.endswith("terminated") else {}
    logs = vs.policy.Logs.of(s, a, r, after, np.arange(episodes).repeat(steps), log_probs=log_probs, **ends)
    tiny = spelled(vs.policy.Settings, {"hidden": (8,), "steps": 30, "lr": 1e-2, "batch": 64, "check_every": 10})
    options = {"settings": vs.policy.Settings(**tiny), "trajectories": 60, "members": 2, "classifiers": 2}
    options |= {"diagnostics": True, "behaviour": None if name.endswith("terminated") else behaviour}
    said = vs.policy.evaluate(logs, target, horizon=steps, resamples=20, seed=4, discount=0.95, **options)
    found: dict[str, Any] = {"outside": said.outside, "gap": said.calibration.gap.value}
    for key, estimate in (said.estimates | said.diagnostics).items():
        found |= interval(key, estimate) | {f"{key}.std_error": estimate.std_error}
    return found


KINDS = {
    "methods": Kind(tuple(METHODS), method_numbers, lambda name: vs.methods.METHODS[name]),
    "ratios": Kind(
        (*RATIOS, "auto", "permutation_test"), ratio_numbers, lambda name: vs.ratios.RATIOS.get(name.split()[0])
    ),
    "metrics": Kind(METRICS, metric_numbers, lambda name: getattr(vs.metrics, name)),
    "divergences": Kind((*FAMILY, *BOUNDS), divergence_numbers),
    "weights": Kind(WEIGHTS, weight_numbers, lambda name: getattr(vs.weights, name)),
    "chains": Kind(CHAINS, chain_numbers, lambda name: vs.chains.STRATEGIES[name.split()[0]]),
    "generators": Kind(
        (*GENERATORS, "dagan"),
        generator_numbers,
        lambda name: lfiw.DAGAN if name == "dagan" else vs.generators.GENERATORS[name.split()[0]],
    ),
    "features": Kind(tuple(FEATURES), feature_numbers, lambda name: vs.features.FEATURES[name.split()[0]]),
    "comparison": Kind(COMPARISONS, comparison_numbers),
    "generation": Kind(("run",), generation_numbers),
    "policy": Kind(POLICIES, policy_numbers),
}


def compute(kind: str, name: str) -> dict[str, Any]:
    """The numbers of one entry as they are stored: nine digits, and words for what JSON cannot write."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so few rows and steps earn a warning
        found = KINDS[kind].numbers(name)
    return {key: [plain(v) for v in value] if isinstance(value, list) else plain(value) for key, value in found.items()}


def plain(value: Any) -> float | str:
    """A number with nine digits, or "nan", "inf" and "-inf"."""
    value = float(value)
    return float(f"{value:.9g}") if math.isfinite(value) else str(value)


def version_of(kind: str, name: str) -> int:
    """The version of what an entry runs: its own, and one more each time that of the loop around it was raised."""
    own = VERSIONS.get(f"{kind}/{name}", getattr(KINDS[kind].subject(name), "version", 1))
    return own + (LOOPS[kind].VERSION - 1 if kind in LOOPS else 0)


def tolerance(kind: str, name: str) -> float:
    """How far a number of this entry may be from the stored one, as a share of it."""
    return TOLERANCES.get(f"{kind}/{name}", RTOL)


def differences(stored: Mapping[str, Any], found: Mapping[str, Any], rtol: float = RTOL) -> list[str]:
    """A line for each number that is not the same, is missing, or is new."""
    lines = [f"{key}: was {stored[key]}, is missing" for key in stored.keys() - found.keys()]
    lines += [f"{key}: is {found[key]}, was not stored" for key in found.keys() - stored.keys()]
    for key in stored.keys() & found.keys():
        was, now = (np.atleast_1d(np.array(side[key], dtype=float)) for side in (stored, found))
        if was.shape != now.shape:
            lines.append(f"{key}: had {was.size} numbers, has {now.size}")
            continue
        for i in np.flatnonzero(~np.isclose(now, was, rtol=rtol, atol=ATOL, equal_nan=True)):
            place = f"[{i}]" if was.size > 1 else ""
            lines.append(f"{key}{place}: was {was[i]:.9g}, is {now[i]:.9g}")
    return sorted(lines)


def advice(kind: str, name: str, lines: list[str]) -> str:
    """What to tell whoever changed the results of an entry."""
    has_class = hasattr(KINDS[kind].subject(name), "version")
    where = (
        "`version` in its file" if has_class else f"`version` of '{kind}/{name}' in VERSIONS of tests/golden/cases.py"
    )
    if kind in LOOPS:
        loop = f"`VERSION` in {LOOPS[kind].__name__}"
        where = f"{where} (or {loop}, if the loop around all of them changed)" if has_class else loop
    command = f'"{name}"' if " " in name or "(" in name else name
    head = f"The results of '{name}' changed. If that is meant, raise {where} and run "
    head += f"`python tests/golden/cases.py --write {command}`. Of the {kind}:"
    return "\n  ".join([head, *lines[:12], *([f"and {len(lines) - 12} more"] if len(lines) > 12 else [])])


def read(path: Path = FILE) -> dict[str, dict[str, Any]]:
    """All stored entries by kind and name."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(chosen: Iterable[str] = (), path: Path = FILE, told: Callable[[str], None] = print) -> None:
    """Store the entries of these names or kinds (all without any); nothing is written where one is refused."""
    chosen, stored = set(chosen), read(path)
    known = {(kind, name) for kind, entries in KINDS.items() for name in entries.names}
    wanted = sorted((k, n) for k, n in known if not chosen or {k, n, f"{k}/{n}"} & chosen)
    unknown = chosen - {word for k, n in wanted for word in (k, n, f"{k}/{n}")}
    if unknown:
        raise SystemExit(f"No entry or kind is called {', '.join(sorted(unknown))}.")
    for kind, name in wanted:
        found, version = compute(kind, name), version_of(kind, name)
        before = stored.get(kind, {}).get(name)
        if (
            before is not None
            and version <= before["version"]
            and differences(before["numbers"], found, tolerance(kind, name))
        ):
            raise SystemExit(
                f"The entry '{name}' of {kind} has other numbers but still version {version}: raise its version first."
            )
        stored.setdefault(kind, {})[name] = {"version": version, "numbers": found}
        told(f"{kind}/{name}: {len(found)} numbers, version {version}")
    kept = {kind: {n: stored[kind][n] for n in KINDS[kind].names if n in stored.get(kind, {})} for kind in KINDS}
    path.write_text(as_text(kept))


def as_text(stored: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with one number, or one short list, a line."""
    blocks = []
    for kind, entries in stored.items():
        rows = []
        for name, entry in entries.items():
            inner = ",\n".join(f"        {json.dumps(k)}: {json.dumps(v)}" for k, v in entry["numbers"].items())
            head = f'    {json.dumps(name)}: {{\n      "version": {entry["version"]},\n      "numbers": {{\n'
            rows.append(f"{head}{inner}\n      }}\n    }}")
        blocks.append(f"  {json.dumps(kind)}: {{\n" + ",\n".join(rows) + "\n  }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def main(arguments: list[str]) -> None:
    """Write entries."""
    parser = argparse.ArgumentParser(description="Golden numbers of everything that computes.")
    parser.add_argument("--write", nargs="*", metavar="NAME", required=True, help="entries or kinds; all without any")
    torch.set_num_threads(1)
    write(parser.parse_args(arguments).write)


if __name__ == "__main__":
    main(sys.argv[1:])
