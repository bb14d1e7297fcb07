"""One of two processes that share out rows, and what all metrics compute there."""

import json

import numpy as np
import torch
import torch.distributed as dist


def rows():
    g = np.random.default_rng(0)
    return torch.from_numpy(g.normal(size=(300, 3))), torch.from_numpy(g.normal(0.5, 1.2, size=(260, 3)))


def metrics(real):
    from vestige.plugins.torchmetrics import FIDMetric, JSMetric, KIDMetric, MMDMetric

    return {"fid": FIDMetric(real), "kid": KIDMetric(real), "mmd": MMDMetric(real), "js": JSMetric(real, rows=200)}


def shared(rank, folder):
    """Process `rank` meets the other in `folder`, takes its share of the rows, and the first writes what was found."""
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2)
    real, new = rows()
    made = metrics(real)
    for batch in ((new[:90], new[90:100]), (new[100:],))[rank]:  # unequal shares
        for metric in made.values():
            metric.update(batch)
    found = {name: float(metric.compute()) for name, metric in made.items()}
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()
