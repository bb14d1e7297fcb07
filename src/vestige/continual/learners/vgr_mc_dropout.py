"""Variational generative replay with Monte Carlo dropout for a posterior: Farquhar and Gal C.8.1.

The loss and the masks are those of `mc_dropout`, the rows those of `vgr`: the task's data and generated samples of the
earlier tasks. "An L2 regularization with weight 0.01 produced the KL divergence", whatever the number of samples. The
paper's network is net="conv", trained for 25 epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

from vestige.continual.learners.mc_dropout import MCDropout, MCDropoutConfig
from vestige.continual.learners.vgr import GenerativeReplay, ReplayedConfig


# The method's config comes first, so that its defaults win over those of plain training.
@dataclass(frozen=True)
class VGRMCDropoutConfig(MCDropoutConfig, ReplayedConfig):
    """Dropout, and generators."""


class VGRMCDropout(GenerativeReplay, MCDropout):
    """Masks are its posterior, generated samples its past."""

    config: VGRMCDropoutConfig

    @classmethod
    def default_config(cls) -> VGRMCDropoutConfig:
        """Dropout 0.25, l2 0.01 (C.8.1), a small convolutional GAN for each class."""
        return VGRMCDropoutConfig()
