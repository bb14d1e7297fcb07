"""Learners: one file each. A new one is a file like `vanilla.py`, a line in `METHODS`, a row in the contract tests."""

from dataclasses import replace
from typing import Any

from vestige.checks import one_of
from vestige.data.stream import Stream
from vestige.errors import InputError
from vestige.methods.base import Info, Learner, Outputs, Spec, TrainConfig
from vestige.methods.dgr import DGR
from vestige.methods.ensemble import Ensemble
from vestige.methods.ewc import EWC, EWCHuszar
from vestige.methods.ewc_pp import EWCPP
from vestige.methods.gem import GEM
from vestige.methods.icarl import ICaRL, ICaRLHB1
from vestige.methods.joint import Joint
from vestige.methods.mc_dropout import MCDropout
from vestige.methods.pi import PI
from vestige.methods.posterior import Posterior
from vestige.methods.presets import PRESETS, preset_fields
from vestige.methods.rehearsed import EWCPPS, EWCS, PIS, EWCHuszarS, RWalkS, VanillaS
from vestige.methods.rwalk import RWalk
from vestige.methods.vanilla import Vanilla
from vestige.methods.vcl import VCL
from vestige.methods.vcl_coreset import CoresetOnly, VCLCoreset
from vestige.methods.vgr import VGR, VGRVCL
from vestige.methods.vgr_mc_dropout import VGRMCDropout
from vestige.methods.weighted_replay import WeightedReplay

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
