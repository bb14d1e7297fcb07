"""Shared training: losses, splits, minibatches, early stopping; KLIEP by network against closed forms."""

import math
import warnings

import pytest
import torch

from vestige import store
from vestige.core.errors import InputError, VestigeWarning
from vestige.nets import BatchedMLP
from vestige.nets.training import Best, MemberAdam
from vestige.ratios import losses
from vestige.ratios.nets import KLIEPNet
from vestige.ratios.training import Budget, MemberRows, _Batches, reach, split, train

FAST = {"hidden": (16,), "steps": 150, "check_every": 10}


def normal(n, d=1, mean=0.0, sd=1.0, seed=0):
    return mean + sd * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def even(m, n):
    return torch.full((m, n), 1 / n, dtype=torch.float64)


def test_kliep_s_loss_is_equation_2_with_equation_3():
    psi_p, psi_q = normal(1, 5), normal(1, 4, seed=1)
    r_p = psi_p.exp() / psi_q.exp().mean()
    torch.testing.assert_close(losses.kliep(psi_p, psi_q, even(1, 5), even(1, 4)), -r_p.log().mean()[None])
    shifted = losses.kliep(psi_p + 3, psi_q + 3, even(1, 5), even(1, 4))
    torch.testing.assert_close(shifted, losses.kliep(psi_p, psi_q, even(1, 5), even(1, 4)))


def test_kliep_s_loss_is_least_at_the_true_ratio():
    # On a grid the expectations are exact: p and q are the weights of the same points.
    x = torch.linspace(-9, 10, 801, dtype=torch.float64)
    p, q = torch.softmax(-x.square() / 2, 0)[None], torch.softmax(-(x - 1).square() / 2, 0)[None]
    psi = (p.log() - q.log()).requires_grad_()
    loss = losses.kliep(psi, psi, p, q)
    (slope,) = torch.autograd.grad(loss.sum(), psi)
    assert float(slope.abs().max()) < 1e-12
    torch.testing.assert_close(loss.detach(), torch.tensor([-0.5], dtype=torch.float64), atol=1e-5, rtol=0)  # -KL


@pytest.mark.parametrize("name", ["logistic", "kliep", "least_squares"])
def test_weights_count_like_copies(name):
    out_p, out_q = normal(1, 3), normal(1, 2, seed=1)
    times_p, times_q = torch.tensor([3, 1, 0]), torch.tensor([1, 4])
    weighted = getattr(losses, name)(out_p, out_q, times_p[None] / 4.0, times_q[None] / 5.0)
    copied = getattr(losses, name)(
        out_p.repeat_interleave(times_p, 1), out_q.repeat_interleave(times_q, 1), even(1, 4), even(1, 5)
    )
    torch.testing.assert_close(weighted, copied)


def test_split_is_a_partition_whose_parts_all_have_weight():
    weights = torch.zeros(50, dtype=torch.float64)
    weights[[7, 20, 33]] = 1 / 3
    for seed in range(20):
        parts = split(weights, [0.2, 0.1], "test", torch.Generator().manual_seed(seed))
        assert [len(part) for part in parts] == [35, 10, 5]
        assert torch.equal(torch.cat(parts).sort().values, torch.arange(50))
        assert all(float(weights[part].sum()) > 0 for part in parts)
    weights[7] = 0
    with pytest.raises(InputError, match="3 samples of positive weight"):
        split(weights, [0.2, 0.1], "test", torch.Generator())


def test_reach_leaves_the_stated_number_of_rows_outside():
    normal_law = torch.distributions.Normal(0.0, 1.0)
    assert 10000 * (1 - float(normal_law.cdf(torch.tensor(reach(10000))))) == pytest.approx(5, rel=1e-3)
    assert reach(8) == 1.0


def test_an_epoch_of_equal_weights_is_a_permutation_and_of_unequal_ones_follows_them():
    x = torch.arange(12.0).reshape(1, 12, 1)
    batches = _Batches(MemberRows(x, torch.full((1, 12), 1 / 12)), 4, [0], "p")
    seen = torch.cat([batches.next().x.flatten() for _ in range(3)])
    assert torch.equal(seen.sort().values, torch.arange(12.0))
    weights = torch.tensor([[6 / 12, 4 / 12, 2 / 12, *[0.0] * 9]])
    batches = _Batches(MemberRows(x, weights), 4, [0], "p")
    seen = torch.cat([batches.next().x.flatten() for _ in range(3)])
    assert torch.bincount(seen.long(), minlength=12).tolist() == [6, 4, 2, *[0] * 9]


def budget(**changes):
    plain = {"learning_rate": 0.05, "weight_decay": 0.0, "batch_size": 100, "steps": 40, "epochs": 1}
    plain |= {"check_every": 5, "patience": 2}
    return Budget(**(plain | {"tolerance": 5e-3, "gradient_clip": None} | changes))


def test_the_best_parameters_are_kept_and_patience_ends_the_run():
    # The held-out rows say the opposite of the training rows, so the start is the best there is.
    x, w = torch.randn(1, 20, 2, generator=torch.Generator().manual_seed(0)), torch.full((1, 20), 1 / 20)
    net = BatchedMLP.initial(1, (2, 8, 1), generator=torch.Generator().manual_seed(0), zero_last=True)
    start = [value.detach().clone() for value in net.parameters()]
    p, q = MemberRows(x + 1, w), MemberRows(x - 1, w)
    outcome = train(net, p, q, q, p, losses.logistic, budget(), [0])
    assert outcome.steps == 10
    assert int(outcome.best_step) == 0
    assert float(outcome.held_out_loss) == pytest.approx(math.log(2))
    assert all(torch.equal(value, before) for value, before in zip(net.parameters(), start, strict=True))


def test_a_settled_member_stays_settled_however_long_others_run():
    weights = torch.zeros(2, 3)
    best = Best([weights], limit=10)
    for step, (first, second) in enumerate([(1.0, 1.0), (0.5, 2.0), (0.4, 2.0), (0.3, 0.1)]):
        weights.fill_(float(step))
        best.update(torch.tensor([first, second]), 5 * step)
    assert best.alive.tolist() == [True, False]
    assert best.kept[0][:, 0].tolist() == [3.0, 0.0]  # the second had given up before its 0.1
    assert best.loss.tolist() == pytest.approx([0.3, 1.0])


def test_members_do_not_touch_each_other():
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(3, 20, 2, generator=generator), torch.full((3, 20), 1 / 20)
    shift = torch.tensor([0.1, 0.5, 1.5])[:, None, None]

    def run(chosen):
        nets = [BatchedMLP.initial(1, (2, 8, 1), generator=torch.Generator().manual_seed(i)) for i in chosen]
        net = BatchedMLP.stack(nets)
        p, q = MemberRows(x[chosen] + shift[chosen], w[chosen]), MemberRows(x[chosen], w[chosen])
        outcome = train(net, p, q, q, p, losses.logistic, budget(batch_size=8, gradient_clip=0.05), chosen)
        return net, outcome

    together, outcome = run([0, 1, 2])
    for i in range(3):
        alone, single = run([i])
        for a, b in zip(alone.parameters(), together.parameters(), strict=True):
            torch.testing.assert_close(a[0], b[i], atol=1e-5, rtol=1e-4)
        assert int(single.best_step) == int(outcome.best_step[i])
        assert float(single.clipped) == pytest.approx(float(outcome.clipped[i]))
        assert bool(single.converged) == bool(outcome.converged[i])


def test_adam_is_torch_s():
    net = BatchedMLP.initial(2, (3, 4, 1), generator=torch.Generator().manual_seed(0), skip=True)
    copies = [t.detach().clone().requires_grad_() for t in net.parameters()]
    groups = [{"params": copies[:2]}, {"params": copies[2:], "weight_decay": 0.0}]
    reference, ours = torch.optim.AdamW(groups, lr=0.02, weight_decay=0.3), MemberAdam(net)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        for t in copies:
            t.grad = torch.randn(t.shape, generator=generator)
        reference.step()
        ours.step(torch.cat([t.grad.flatten(1) for t in copies], 1), 0.02, 0.3)
    for a, b in zip(net.parameters(), copies, strict=True):
        torch.testing.assert_close(a, b)


def test_kliep_finds_the_ratio_of_gaussians_and_its_mean_under_q_is_one():
    p, q = normal(2000, 2, 0.0, seed=1), normal(2000, 2, 0.7, seed=2)
    ratio = KLIEPNet().fit(p, q)
    x = normal(4000, 2, 0.35, seed=3)
    truth = ((x - 0.7).square() - x.square()).sum(1) / 2
    assert float((ratio.log_ratio(x) - truth).square().mean()) < 0.08  # the variance of truth is 1.0
    assert float(ratio.log_ratio(q).exp().mean()) == pytest.approx(1, abs=1e-9)
    assert ratio.report_["converged"]
    assert ratio.report_["warnings"] == []


def test_one_row_of_p_beyond_every_row_of_q_does_not_send_the_ratio_away():
    p, q = normal(300, 1, 0.0, seed=1), normal(300, 1, 0.0, seed=2)
    p[0] = 8.0
    plain = KLIEPNet(clip=None, **FAST | {"steps": 600})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VestigeWarning)
        runaway = plain.fit(p, q).log_ratio([[8.0]])[0]
        bounded = KLIEPNet(**FAST | {"steps": 600}).fit(p, q).log_ratio([[8.0]])[0]
    assert bounded < 2 < runaway


def test_without_held_out_rows_every_row_trains_and_the_training_loss_decides():
    p, q = normal(30, 1, 0.0, seed=1), normal(30, 1, 1.0, seed=2)
    stopped, whole = (KLIEPNet(held_out=share, clip=None, **FAST).fit(p, q) for share in (0.2, 0.0))
    losses_on_all = [float(ratio.log_ratio(p).mean()) for ratio in (stopped, whole)]  # minus KLIEP's loss
    assert losses_on_all[1] > losses_on_all[0]
    assert whole.report_["best_step"] > 100  # training goes on to the end: the training loss keeps falling
    assert whole.report_["held_out_loss"] is None
    assert "held_out_log_loss" not in whole.report_


def test_a_fit_that_stops_short_says_so():
    p, q = normal(400, 1, 0.0, seed=1), normal(400, 1, 2.0, seed=2)
    ratio = KLIEPNet(hidden=(8,), steps=10, epochs=1, check_every=1, learning_rate=1e-3)
    with pytest.warns(VestigeWarning, match="did not converge"):
        ratio.fit(p, q)
    assert ratio.report_["converged"] is False
    assert len(ratio.report_["warnings"]) == 1


def test_the_quadratic_skip_comes_with_ten_features_and_is_reported():
    p, q = normal(300, 10, 0.0, seed=1), normal(300, 10, 0.2, 1.2, seed=2)
    assert KLIEPNet(**FAST).fit(p, q).report_["skip"] == "quadratic"
    narrow = KLIEPNet(**FAST).fit(p[:, :9], q[:, :9])
    assert narrow.report_["skip"] == "none"
    assert "net_.skip" not in store.to_tensors(narrow)


def test_rows_have_one_value_whatever_else_is_in_the_call(monkeypatch):
    p, q = normal(200, 2, seed=1), normal(200, 2, 0.5, seed=2)
    ratio = KLIEPNet(**FAST).fit(p, q)
    whole = ratio.log_ratio(p)
    torch.testing.assert_close(ratio.log_ratio(p[:3]), whole[:3], atol=1e-12, rtol=0)
    monkeypatch.setattr("vestige.ratios.training.BLOCK_CELLS", 64)
    torch.testing.assert_close(ratio.log_ratio(p), whole, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden": (0,)}, "'hidden' of KLIEPNet must be at least 1"),
        ({"activation": "rleu"}, "Did you mean 'relu'"),
        ({"skip": "all"}, "'skip' of KLIEPNet"),
        ({"learning_rate": 0.0}, "'learning_rate' of KLIEPNet"),
        ({"held_out": 0.9}, "'held_out' of KLIEPNet"),
        ({"clip": -1.0}, "'clip' of KLIEPNet"),
        ({"steps": 0}, "'steps' of KLIEPNet"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        KLIEPNet(**change).fit(normal(20), normal(20, seed=1))
