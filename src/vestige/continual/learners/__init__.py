"""Learners: one file each. A new one is a file like `vanilla.py`, a line in `METHODS`, a row in the contract tests."""

from dataclasses import replace
from typing import Any

from vestige.continual.learners.base import Info, Learner, Outputs, Spec, TrainConfig
from vestige.continual.learners.dgr import DGR
from vestige.continual.learners.ensemble import Ensemble
from vestige.continual.learners.ewc import EWC, EWCHuszar
from vestige.continual.learners.ewc_pp import EWCPP
from vestige.continual.learners.gem import GEM
from vestige.continual.learners.icarl import ICaRL, ICaRLHB1
from vestige.continual.learners.joint import Joint
from vestige.continual.learners.mc_dropout import MCDropout
from vestige.continual.learners.pi import PI
from vestige.continual.learners.posterior import Posterior
from vestige.continual.learners.presets import PRESETS, preset_fields
from vestige.continual.learners.rehearsed import EWCPPS, EWCS, PIS, EWCHuszarS, RWalkS, VanillaS
from vestige.continual.learners.rwalk import RWalk
from vestige.continual.learners.vanilla import Vanilla
from vestige.continual.learners.vcl import VCL
from vestige.continual.learners.vcl_coreset import CoresetOnly, VCLCoreset
from vestige.continual.learners.vgr import VGR, VGRVCL
from vestige.continual.learners.vgr_mc_dropout import VGRMCDropout
from vestige.continual.learners.weighted_replay import WeightedReplay
from vestige.core.checks import one_of
from vestige.core.errors import InputError
from vestige.data.stream import Stream

METHODS: dict[str, type[Learner]] = {
    "coreset_only": CoresetOnly,
    "dgr": DGR,
    "ensemble": Ensemble,
    "ewc": EWC,
    "ewc_huszar": EWCHuszar,
    "ewc_huszar_s": EWCHuszarS,
    "ewc_pp": EWCPP,
    "ewc_pp_s": EWCPPS,
    "ewc_s": EWCS,
    "gem": GEM,
    "icarl": ICaRL,
    "icarl_hb1": ICaRLHB1,
    "joint": Joint,
    "mc_dropout": MCDropout,
    "pi": PI,
    "pi_s": PIS,
    "rwalk": RWalk,
    "rwalk_s": RWalkS,
    "vanilla": Vanilla,
    "vanilla_s": VanillaS,
    "vcl": VCL,
    "vcl_coreset": VCLCoreset,
    "vgr": VGR,
    "vgr_mc_dropout": VGRMCDropout,
    "vgr_vcl": VGRVCL,
    "weighted_replay": WeightedReplay,
}


def build(name: str, stream: Stream, *, seed: int = 0, preset: str = "paper", **fields: Any) -> Learner:  # noqa: ANN401
    """The learner called `name` for `stream`; `fields` replace those of its configuration and of the preset."""
    method = METHODS[one_of(name, METHODS, "method", "methods.build")]
    chosen = preset_fields(one_of(preset, PRESETS, "preset", "methods.build"), name)
    config = method.default_config()
    unknown = sorted(set(fields) - set(config.__dataclass_fields__))
    if unknown:
        known = ", ".join(config.__dataclass_fields__)
        raise InputError(f"The 'fields' of {name} must be among {known}. Got {', '.join(unknown)} instead.")
    return method(Spec(stream.input_shape, stream.n_outputs), replace(config, **(chosen | fields)), seed=seed)


__all__ = [
    "DGR",
    "EWC",
    "EWCPP",
    "EWCPPS",
    "EWCS",
    "GEM",
    "METHODS",
    "PI",
    "PIS",
    "PRESETS",
    "VCL",
    "VGR",
    "VGRVCL",
    "CoresetOnly",
    "EWCHuszar",
    "EWCHuszarS",
    "Ensemble",
    "ICaRL",
    "ICaRLHB1",
    "Info",
    "Joint",
    "Learner",
    "MCDropout",
    "Outputs",
    "Posterior",
    "RWalk",
    "RWalkS",
    "Spec",
    "TrainConfig",
    "VCLCoreset",
    "VGRMCDropout",
    "Vanilla",
    "VanillaS",
    "WeightedReplay",
    "build",
]
