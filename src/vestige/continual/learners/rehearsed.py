"""The `-S` rows of RWalk Table 1: each method with a memory in its loss. See `replay.py` for the ways it enters."""

from __future__ import annotations

from dataclasses import dataclass

from vestige.continual.learners.ewc import EWC, EWCConfig, EWCHuszar
from vestige.continual.learners.ewc_pp import EWCPP, EWCPPConfig
from vestige.continual.learners.pi import PI, PIConfig
from vestige.continual.learners.replay import Rehearsal, ReplayConfig
from vestige.continual.learners.rwalk import RWalk, RWalkConfig


# The method's config comes first, so that its defaults win over those of plain training.
@dataclass(frozen=True)
class EWCSConfig(EWCConfig, ReplayConfig):
    """EWC and a memory."""


@dataclass(frozen=True)
class EWCPPSConfig(EWCPPConfig, ReplayConfig):
    """EWC++ and a memory."""


@dataclass(frozen=True)
class PISConfig(PIConfig, ReplayConfig):
    """PI and a memory."""


@dataclass(frozen=True)
class RWalkSConfig(RWalkConfig, ReplayConfig):
    """RWalk and a memory."""


class VanillaS(Rehearsal):
    """Plain training with a memory."""


class EWCS(Rehearsal, EWC):
    """EWC with a memory."""

    config: EWCSConfig

    @classmethod
    def default_config(cls) -> EWCSConfig:
        """The defaults of both."""
        return EWCSConfig()


class EWCHuszarS(Rehearsal, EWCHuszar):
    """EWC with one anchor, and a memory."""

    config: EWCSConfig

    @classmethod
    def default_config(cls) -> EWCSConfig:
        """The defaults of both."""
        return EWCSConfig()


class EWCPPS(Rehearsal, EWCPP):
    """EWC++ with a memory."""

    config: EWCPPSConfig

    @classmethod
    def default_config(cls) -> EWCPPSConfig:
        """The defaults of both."""
        return EWCPPSConfig()


class PIS(Rehearsal, PI):
    """PI with a memory."""

    config: PISConfig

    @classmethod
    def default_config(cls) -> PISConfig:
        """The defaults of both."""
        return PISConfig()


class RWalkS(Rehearsal, RWalk):
    """RWalk with a memory."""

    config: RWalkSConfig

    @classmethod
    def default_config(cls) -> RWalkSConfig:
        """The defaults of both."""
        return RWalkSConfig()
