"""Wide networks: the gradient against autograd, the rows that choose, and a pattern that no quadratic sees."""

import torch
from torch.nn.functional import softplus

from vestige.ratios.stack.wide import PEAK, VALIDATION, Split, WideNets, WideSchedule, train_wide

SMALL = WideSchedule((8, 8), 1e-2, 1.0, epochs=20)


def weights(folds, n):
    trained = torch.ones(folds, n, dtype=torch.float64)
    for f in range(folds):
        trained[f, f::folds] = 0
    return trained


def test_the_gradient_is_that_of_the_mean_loss():
    generator = torch.Generator().manual_seed(0)
    nets = WideNets.initial(2, 3, SMALL, generator=generator)
    for t in nets.tensors():
        t.normal_(generator=generator)
    u, sign = torch.randn(2, 10, 3, generator=generator), torch.ones(10)
    sign[5:] = -1
    into = [torch.empty_like(t) for t in nets.tensors()]
    nets.write_gradient(u, sign, into)
    tensors = [t.requires_grad_() for t in nets.tensors()]
    loss = softplus(-sign * nets.layers(u)[1][-1][:, :, 0]).mean(1).sum()
    for got, exact in zip(into, torch.autograd.grad(loss, tensors), strict=True):
        torch.testing.assert_close(got, exact, atol=1e-6, rtol=1e-4)


def test_networks_begin_at_zero_and_the_first_layer_is_scaled():
    made = [WideNets.initial(2, 3, SMALL, generator=torch.Generator().manual_seed(1))]
    made.append(WideNets.initial(2, 3, WideSchedule((8, 8), 1e-2, 3.0, 1), generator=torch.Generator().manual_seed(1)))
    assert float(made[0].predict(torch.randn(5, 3)).abs().max()) == 0
    torch.testing.assert_close(made[1].weights[0], 3 * made[0].weights[0])
    torch.testing.assert_close(made[1].weights[1], made[0].weights[1])


def test_the_rate_rises_to_its_peak_and_falls_to_nothing():
    rates = [SMALL.rate_at(step, 100) for step in range(100)]
    assert max(rates) == rates[round(100 * PEAK)] == SMALL.learning_rate
    assert rates[0] < 0.05 * SMALL.learning_rate
    assert rates[-1] < 0.01 * SMALL.learning_rate


def test_rows_that_choose_are_not_trained_on():
    trained = weights(2, 160)
    split = Split.of(trained, 80, generator=torch.Generator().manual_seed(0))
    assert split.judges.shape == (2, 2 * (40 // VALIDATION))
    assert float(split.trained.gather(1, split.judges).sum()) == 0
    assert bool((trained.gather(1, split.judges) > 0).all())  # nor are rows of another fold asked
    torch.testing.assert_close(split.share.sum(1), torch.ones(2))
    assert int((split.sign > 0).sum()) == 40 // VALIDATION


def test_a_chess_board_is_learnt_and_held_out():
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(4000, 2, generator=generator, dtype=torch.float64) * 2 - 1
    of_p = (x[:, 0] * x[:, 1] > 0) == (torch.rand(4000, generator=generator) < 0.8)  # log-ratio of +-log 4
    u = torch.cat([x[of_p], x[~of_p]])
    n_p, trained = int(of_p.sum()), weights(2, len(u))
    schedule = WideSchedule((32, 32), 1e-2, 3.0, epochs=30)
    first, second = (
        train_wide(u, n_p, trained, schedule, generator=torch.Generator().manual_seed(5)).predict(u) for _ in range(2)
    )
    assert torch.equal(first, second)
    held_out = first.gather(0, (torch.arange(len(u)) % 2)[None])[0]
    right = (held_out > 0) == (u[:, 0] * u[:, 1] > 0)
    assert float(right.double().mean()) > 0.9


def test_rows_of_weight_zero_say_nothing():
    generator = torch.Generator().manual_seed(0)
    u, trained = torch.randn(400, 2, generator=generator), weights(2, 400)
    trained[:, 50:80] = 0
    other = u.clone()
    other[50:80] = 100
    one, two = (train_wide(v, 200, trained, SMALL, generator=torch.Generator().manual_seed(1)) for v in (u, other))
    assert all(torch.equal(a, b) for a, b in zip(one.tensors(), two.tensors(), strict=True))
