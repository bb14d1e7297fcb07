"""Records whose every number is known."""

import torch

from vestige.continual.record import Record

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> 'a' & \u202eשבת"
LONG = "w" * 300
NAN = float("nan")


def matrix(last, t=3):
    """Ones on the diagonal, `last` below it, a tenth above."""
    ones = torch.ones(t, t, dtype=torch.float64)
    return ones.tril(0).triu(0) + last * ones.tril(-1) + 0.1 * ones.triu(1)


def bare(method="vanilla", seed=0, last=0.25, *, reference=True, config=None, **fields):
    """What the protocol leaves of a run on three tasks: a task keeps `last` of its accuracy once another is learnt."""
    own = {
        "stream": {"stream": "split", "data": "digits", "seed": seed},
        "learner": {"method": method, "lr": 0.1},
        "reference": [0.9 + 0.01 * seed] * 3,
    }
    given = {
        "head": "single",
        "matrices": {"single": matrix(last), "multi": matrix(last + 0.5)},
        "reference": torch.full((3,), 0.9, dtype=torch.float64) if reference else None,
        "baseline": {"single": torch.full((3,), 0.1, dtype=torch.float64)},
        "seconds": {"train": [1.0, 2.0, 3.0 + seed], "eval": [0.1] * 3},
        "bytes": {"model": [1_000_000] * 3, "peak": [5_000_000, 9_000_000, 7_000_000]},
        "task_names": ["one", "two", "three"],
    }
    return Record(config or own, seed, **(given | fields))
