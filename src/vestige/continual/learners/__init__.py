"""Learners: one file a family. A new one is a file like `vanilla.py`, a line in `METHODS`, a row in the contract tests.

`build("rwalk", stream, memory={"per_class": 10})` is RWalk with rehearsal; `rwalk_s` is a name for that with the memory
of RWalk Table 1 (its `-S` rows) filled in. `build("rwalk", stream, preset="authors")` is the method as the code of
RWalk's authors has it, as far as it has the method at all: of EWC it has only the online form, which the paper too
calls EWC. Strengths, memory and learning rate stay those of the default. "paper" is what the papers say: the defaults,
but for VCL and its kin, whose log-variances then have the learning rate of the means. In the papers' 120 steps a task
that leaves all of them where they began: the posterior has one width, and VCL is an isotropic anchor.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from vestige.continual.learners.agem import AGEM
from vestige.continual.learners.base import Learner, Outputs, Spec
from vestige.continual.learners.der_pp import DERPP
from vestige.continual.learners.er import ER
from vestige.continual.learners.fecam import FeCAM
from vestige.continual.learners.gdumb import GDumb
from vestige.continual.learners.gem import GEM
from vestige.continual.learners.generative_replay import DGR, GeneratedReplay
from vestige.continual.learners.icarl import ICaRL, ICaRLHB1
from vestige.continual.learners.joint import Joint
from vestige.continual.learners.lwf import LwF
from vestige.continual.learners.ncm import NCM
from vestige.continual.learners.penalty import EWC, PI, EWCHuszar
from vestige.continual.learners.posterior import Ensemble, MCDropout
from vestige.continual.learners.rwalk import EWCPP, RWalk
from vestige.continual.learners.slda import SLDA
from vestige.continual.learners.vanilla import Vanilla
from vestige.continual.learners.vcl import VCL, CoresetOnly, VCLCoreset, expected_loss
from vestige.continual.learners.vgr import VGR, VGRVCL, VGRMCDropout
from vestige.continual.learners.weighted_replay import WeightedReplay
from vestige.continual.memory import Rehearsal
from vestige.core import checks
from vestige.data.stream import Stream
from vestige.nets import OwnNet, own_net

__all__ = [
    "METHODS",
    "PRESETS",
    "VCL",
    "GeneratedReplay",
    "Learner",
    "Outputs",
    "Rehearsal",
    "Spec",
    "Vanilla",
    "WeightedReplay",
    "build",
    "expected_loss",
]

METHODS: dict[str, type[Learner]] = {
    "agem": AGEM,
    "coreset_only": CoresetOnly,
    "der_pp": DERPP,
    "dgr": DGR,
    "ensemble": Ensemble,
    "er": ER,
    "ewc": EWC,
    "ewc_huszar": EWCHuszar,
    "ewc_huszar_s": EWCHuszar,
    "ewc_pp": EWCPP,
    "ewc_pp_s": EWCPP,
    "ewc_s": EWC,
    "fecam": FeCAM,
    "gdumb": GDumb,
    "gem": GEM,
    "icarl": ICaRL,
    "icarl_hb1": ICaRLHB1,
    "joint": Joint,
    "lwf": LwF,
    "mc_dropout": MCDropout,
    "ncm": NCM,
    "pi": PI,
    "pi_s": PI,
    "rwalk": RWalk,
    "rwalk_s": RWalk,
    "slda": SLDA,
    "vanilla": Vanilla,
    "vanilla_s": Vanilla,
    "vcl": VCL,
    "vcl_coreset": VCLCoreset,
    "vgr": VGR,
    "vgr_mc_dropout": VGRMCDropout,
    "vgr_vcl": VGRVCL,
    "weighted_replay": WeightedReplay,
}

Options = dict[str, Any]

# What a name fills in besides the class.
FILLED_IN: dict[str, Options] = {name: {"memory": Rehearsal()} for name in METHODS if name.endswith("_s")}

# Truncated-normal weights, biases of 0.1, a fresh optimiser for each task.
_TRAINING: Options = {"init": "truncated_normal", "reset_optimizer": True}
# The square of the mean gradient, averaged over the interval, scaled to [0, 1] over all layers.
_FISHER: Options = _TRAINING | {"fisher": "batch", "accumulate": "interval", "normalise": "joint"}
# What the code of RWalk's authors does otherwise than the papers, by class; the others have their training alone.
AUTHORS: dict[type[Learner], Options] = {
    EWCPP: _FISHER | {"half_penalty": False},
    PI: _TRAINING | {"damping": 1e-3, "gradient": "task"},
    # "code" is 3/2 of the old score and 1/2 of the new.
    RWalk: _FISHER | {"half_distance": False, "average": "code", "eps": 1e-3, "gradient": "task"},
}
# What the papers say and the defaults do not, by the class that brings the setting.
PAPER: dict[type[Learner], Options] = {VCL: {"variance_learning_rate": None}}
PRESETS = ("paper", "authors")


def build(name: str, stream: Stream, *, seed: int = 0, preset: str | None = None, **options: Any) -> Learner:  # noqa: ANN401
    """The learner called `name` for `stream`.

    `options` replace those of its configuration and of the `preset`, one of `PRESETS`. What is a configuration itself,
    as `memory` and `replay` are, may be given as a dict of those of its options that are to be other than the default.
    `net` is the name of a network or any `nn.Module`, of which a copy is trained; its head is its last linear layer, or
    the one that `head` names ("fixed" and "grown" say of either how it begins).
    """
    owner = "methods.build"
    net, options = own_part(name, stream, options, seed)
    method = METHODS[checks.one_of(name, METHODS, "method", owner)]
    chosen = FILLED_IN.get(name, {})
    if preset is not None and checks.one_of(preset, PRESETS, "preset", owner) == "authors":
        chosen = chosen | AUTHORS.get(method, _TRAINING)
    if preset == "paper":
        chosen = chosen | next((own for kind, own in PAPER.items() if issubclass(method, kind)), {})
    config = replace(method.default_config(), **chosen)
    given = checks.options(type(config), None, options, name)
    for part, default in (("memory", Rehearsal()), ("replay", GeneratedReplay())):
        if isinstance(given.get(part), Mapping):
            start = getattr(config, part) or default
            given[part] = replace(start, **checks.options(type(start), None, given[part], f"the {part} of {name}"))
        elif part in given and given[part] is None and method.default_config().__dict__[part] is not None:
            checks.refuse(part, name, "given: it cannot do without", None)
    brought: Options = {} if net is None else {"net": net}
    return method(Spec(stream.input_shape, stream.n_outputs), replace(config, **given), seed=seed, **brought)


def own_part(name: str, stream: Stream, options: Options, seed: int) -> tuple[OwnNet | None, Options]:
    """The user's own network, where one is given, and the options without it."""
    module = options.get("net")
    if not isinstance(module, nn.Module):
        return None, options
    method = METHODS[checks.one_of(name, METHODS, "method", "methods.build")]
    if method.own_layers:
        checks.refuse("net", name, f"a name: {method.own_layers}", f"a {type(module).__name__}")
    if "hidden" in options:
        checks.refuse("hidden", name, "left out with a network of one's own", options["hidden"])
    head = options.get("head", "fixed")
    named = head if head not in ("fixed", "grown") else None
    rest = {key: v for key, v in options.items() if key != "net" and not (key == "head" and named is not None)}
    return own_net(module, stream.input_shape, stream.n_outputs, head=named, seed=seed), rest
