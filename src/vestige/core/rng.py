"""Randomness: one seed in, independent named streams out.

`fork(seed, "init")` and `fork(seed, "shuffle", 3)` are streams of their own: one more draw from one never shifts
another, and a new consumer takes a new name. Nothing in the package touches torch's global generator except
`guard`, which lends it to code that can use no other (module initialisation, dropout) and gives it back as it was.

A seed means the same draws on one device; another device draws others from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def child_seed(seed: int, *names: str | int) -> int:
    """A seed in [0, 2^63) that depends on `seed` and on every name, and on nothing else."""
    text = "\x1f".join([str(int(seed)), *(f"{type(n).__name__}:{n}" for n in names)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def fork(seed: int, *names: str | int, device: torch.device | str | None = None) -> torch.Generator:
    """A torch generator of its own for what `names` says, on the device that tensors are made on (None)."""
    return torch.Generator(device or torch.get_default_device()).manual_seed(child_seed(seed, *names))


def fork_numpy(seed: int, *names: str | int) -> np.random.Generator:
    """The same for libraries that draw with numpy."""
    return np.random.default_rng(child_seed(seed, *names))


@contextmanager
def guard(seed: int, *names: str | int) -> Iterator[None]:
    """Within it torch's global generator follows (`seed`, `names`); afterwards it is as it was before."""
    # fork_rng looks at every device of CUDA, and not at MPS; with none but the CPU this costs microseconds.
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    with torch.random.fork_rng(devices=devices):
        try:
            # Of the CPU and of every accelerator; where there is none, torch would write down the stack of each call.
            alone = mps is None and not torch.accelerator.is_available()
            (torch.default_generator.manual_seed if alone else torch.manual_seed)(child_seed(seed, *names))
            yield
        finally:
            if mps is not None:
                torch.mps.set_rng_state(mps)
