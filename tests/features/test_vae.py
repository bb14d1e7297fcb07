"""The loss of VAE and CVAE (CDRE Eq. 15) against a brute-force sum over tasks, samples and dimensions."""

import math

import pytest
import torch

from toys import blobs
from vestige import features
from vestige.core.errors import InputError, VestigeWarning
from vestige.features.rows import Argument, gather
from vestige.features.trained import Prior, active_codes, vae_loss
from vestige.nets.vae import VAENet

SMALL = {
    "dims": 3,
    "encoder": (24,),
    "decoder": (24,),
    "noise": 0.005,
    "epochs": 15,
    "batch_size": 20,
    "learning_rate": 1e-2,
}
DATA = blobs(n_classes=3, per_class=40)
X = DATA.floats(DATA.train_x).flatten(1)
FIRST, SECOND = X[:60], X[60:]
TASKS = {c: X[c == DATA.train_y] for c in range(3)}


def brute_force(net, x, noise, before, tie, variance):
    """-log N(x; decoded, variance) + tie * KL(N(m, s) || N(m0, s0)), one number after another; `before` is q_{t-1}."""
    mean, log_var = net.encode(x[None])
    old_mean, old_log_var = (torch.zeros(1, net.n_codes),) * 2 if before is None else before.encode(x[None])
    z = torch.tensor([[float(m + e * math.exp(v / 2)) for m, v, e in zip(mean[0], log_var[0], noise, strict=True)]])
    decoded = net.decode(z)[0]
    nll = sum(
        0.5 * math.log(2 * math.pi * variance) + float(a - b) ** 2 / (2 * variance)
        for a, b in zip(x, decoded, strict=True)
    )
    kl = 0.0
    for m, v, m0, v0 in zip(mean[0], log_var[0], old_mean[0], old_log_var[0], strict=True):
        s, s0 = math.exp(v), math.exp(v0)
        kl += math.log(math.sqrt(s0 / s)) + (s + float(m - m0) ** 2) / (2 * s0) - 0.5
    return nll + tie * kl


@pytest.mark.parametrize(("tie", "tied"), [(1.0, False), (1.0, True), (0.3, True)])
@torch.no_grad()
def test_the_loss_is_equation_15(tie, tied):
    net, before = (VAENet(36, 3, (24,), (24,), seed=s) for s in (0, 1))
    parts = [Argument("new", TASKS[2][:4], None, 1), Argument("old", {0: TASKS[0][:9], 1: TASKS[1][:2]}, None, 2)]
    rows, _ = gather(parts, "test", (36,), dtype=torch.float32)
    noise = torch.randn(len(rows), 3, generator=torch.Generator().manual_seed(0))
    prior = Prior(*before.encode(rows.x), tie) if tied else Prior.standard(len(rows), 3)
    ours = float((rows.weights * vae_loss(net, rows.x, noise, prior, 0.1)).mean())
    terms = [brute_force(net, x, e, before if tied else None, tie, 0.1) for x, e in zip(rows.x, noise, strict=True)]
    by_task = [terms[:4], terms[4:13], terms[13:]]  # Eq. 15: 1/t for each task, whatever its size
    assert ours == pytest.approx(sum(sum(task) / len(task) for task in by_task) / 3, rel=1e-4)


def test_the_prior_of_a_cvae_is_the_encoder_of_the_step_before():
    cvae, vae = (features.build(name, **SMALL).fit(FIRST) for name in ("cvae", "vae"))
    mean, log_var = cvae.net_.encode(X[:5])
    prior = features.build("cvae", **SMALL, tie=0.5).fit(FIRST)._next_prior(X[:5])
    assert torch.equal(prior.mean, mean.detach())
    assert torch.equal(prior.log_var, log_var.detach())
    assert prior.weight == 0.5
    standard = vae._next_prior(X[:5])
    assert not standard.mean.any()
    assert not standard.log_var.any()


def test_at_the_first_step_a_cvae_is_a_vae():
    cvae, vae = (features.build(name, **SMALL).fit(FIRST, seed=5) for name in ("cvae", "vae"))
    assert torch.equal(cvae(X), vae(X))
    for each in (cvae, vae):
        each.update(SECOND, FIRST, seed=6)
    assert not torch.equal(cvae(X), vae(X))


def test_a_map_that_cannot_move_pays_nothing_for_the_tie():
    """Updated on what it knows with a heavy tie, codes stay; without a tie they do not."""
    heavy, free = (features.build("cvae", **SMALL, tie=tie).fit(FIRST, seed=5) for tie in (1e4, 0.0))
    moved = {}
    for name, each in (("heavy", heavy), ("free", free)):
        before = each.copy()
        each.update(FIRST, seed=6)
        moved[name] = features.code_drift(before, each, FIRST)
    assert moved["heavy"] < 0.2 * moved["free"]


def test_warm_starts_where_the_step_before_ended():
    warm, cold = (features.build("vae", **SMALL, warm=w).fit(FIRST, seed=5) for w in (True, False))
    end = warm.report_["losses"][-1]
    for each in (warm, cold):
        each.update(FIRST, seed=6)
    assert warm.report_["losses"][0] < cold.report_["losses"][0]
    assert warm.report_["losses"][0] < end + 0.2 * abs(end)
    assert cold.report_["losses"][0] > end + 0.5 * abs(end)


def test_it_learns_to_reconstruct_and_to_code():
    vae = features.build("vae", **SMALL | {"epochs": 40}).fit(X)
    with torch.no_grad():
        rebuilt = vae.net_.decode(vae.net_.encode(X)[0])
    error, spread = float((rebuilt - X).square().mean()), float(X.var(0, correction=0).mean())
    assert error < 0.5 * spread
    assert vae.report_["active_codes"] == active_codes(vae.net_, X) >= 2
    assert vae.report_["losses"][-1] < vae.report_["losses"][0]


def test_codes_that_say_nothing_earn_a_warning():
    with pytest.warns(VestigeWarning, match=r"codes of VAEFeatures say nothing.*smaller 'noise' than 1e\+06"):
        vae = features.build("vae", **SMALL | {"noise": 1e6}).fit(X)
    assert vae.report_["active_codes"] == active_codes(vae.net_, X) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dims", 0),
        ("encoder", (0,)),
        ("decoder", (3, -1)),
        ("noise", 0.0),
        ("tie", -1.0),
        ("epochs", 0),
        ("learning_rate", -1.0),
    ],
)
def test_refusals(field, value):
    with pytest.raises(InputError, match=f"'{field}' of CVAE"):
        features.build("cvae", **{field: value})


def test_the_preset_has_the_settings_of_the_appendix():
    paper = features.build("cvae", preset="paper")
    settings = (
        paper.encoder,
        paper.decoder,
        paper.dims,
        paper.noise,
        paper.weight_decay,
        paper.batch_size,
        paper.learning_rate,
    )
    assert settings == ((512, 256), (256, 256), 64, 0.1, 0.001, 100, 0.001)
    assert (paper.epochs, paper.tie) == (100, 1.0)
