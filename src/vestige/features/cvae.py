"""CVAE, the continual VAE of CDRE Eq. 15: a VAE whose codes of step t are tied to those of step t-1.

    L_t = NLL + KL(q_t(z|x) || q_{t-1}(z|x)),    NLL = -(1/t) sum over tasks of E_x E_q_t(z|x) log p(x|z; decoder_t)

x runs over generated samples of the old tasks and real samples of the new one, every task with weight 1/t. At t = 1
there is no q_0, and N(0, I) stands in its place: an ordinary VAE.

Read into Eq. 15: it writes q_t(z) without saying over which x the KL is taken; the text ("similar z for a similar x at
different time t") makes it the KL between the two posteriors of one x, averaged over the same x as the NLL, new ones
included. After the first step nothing draws codes to N(0, I), so the decoder is not a generator there. Each step starts
at the weights of the one before (the paper does not say): without that the tie has to be learnt anew. `tie` weighs the
KL of the steps after the first; Eq. 15 has 1. Other readings and the deviation in epochs stand in `vae`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.features.vae import VAE, Prior


@dataclass(eq=False)
class CVAE(VAE):
    """A variational auto-encoder that gives a sample nearly the code that it gave a step ago."""

    name: ClassVar[str] = "cvae"

    tie: float = 1.0

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        super().check()
        checks.number(self.tie, "tie", "CVAE", low=0)

    @torch.no_grad()
    def _next_prior(self, x: Float[Tensor, "n d"]) -> Prior:
        """What the encoder of the step before says of each row: q_{t-1}(z|x)."""
        mean, log_var = self.net_.encode(x)
        return Prior(mean, log_var, self.tie)
