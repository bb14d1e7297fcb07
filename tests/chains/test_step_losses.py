"""Each step objective against its formula written out in a loop, and against the ratio at which it must be maximal."""

import math

import pytest
import torch

from vestige.chains.step_losses import ESTIMATORS, OUTPUT_OF, step_value
from vestige.ratios.divergences import get

S_P = [[0.3, -0.2, 1.1], [0.0, 0.5, -0.7]]
S_Q = [[-0.4, 0.2], [0.9, -1.3]]
CRITICS = {"kl": "kl", "reverse_kl": "reverse_kl", "js": "js", "hellinger": "hellinger2", "pearson": "pearson_chi2"}


def by_hand(estimator, critic, s_p, s_q):
    n_p, n_q = len(s_p), len(s_q)
    if estimator == "kliep":
        return sum(s_p) / n_p - math.log(sum(math.exp(s) for s in s_q) / n_q)
    if estimator == "logistic":
        on_p = sum(math.log(1 / (1 + math.exp(-s))) for s in s_p) / n_p
        return (on_p + sum(math.log(1 - 1 / (1 + math.exp(-s))) for s in s_q) / n_q) / 2
    if estimator == "lsif":
        return sum(math.exp(s) for s in s_p) / n_p - sum(math.exp(s) ** 2 for s in s_q) / n_q / 2
    f = get(CRITICS[critic])  # T = f'(r), f*(T)

    def slope(s):
        return f.slope(torch.tensor([s], dtype=torch.float64))

    bound = sum(slope(s) for s in s_p) / n_p - sum(f.conjugate(slope(s)) for s in s_q) / n_q
    return float(bound)


CASES = [(e, "kl") for e in ESTIMATORS if e != "fgan"] + [("fgan", critic) for critic in OUTPUT_OF]


@pytest.mark.parametrize(("estimator", "critic"), CASES)
def test_the_value_is_the_formula_for_every_member(estimator, critic):
    found = step_value(estimator, critic)(torch.tensor(S_P).double(), torch.tensor(S_Q).double())
    expected = [by_hand(estimator, critic, p, q) for p, q in zip(S_P, S_Q, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("estimator", "critic"), CASES)
def test_it_is_maximal_at_the_ratio_of_the_two_samples(estimator, critic):
    p, q = torch.tensor([0, 0, 0, 1, 2, 2]), torch.tensor([0, 1, 1, 1, 2, 2])  # a law on three points, as counts
    psi = torch.log(torch.tensor([3 / 1, 1 / 3, 2 / 2], dtype=torch.float64)).requires_grad_()
    value = step_value(estimator, critic)
    (slope,) = torch.autograd.grad(value(psi[p][None], psi[q][None]).sum(), psi)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-6, rtol=0)
    best = float(value(psi[p][None], psi[q][None]).detach())
    for i in range(3):
        moved = psi.detach().clone()
        moved[i] += 0.3
        assert float(value(moved[p][None], moved[q][None])) < best - 1e-4


def test_with_js_the_critic_is_the_logistic_loss():
    s_p, s_q = torch.tensor(S_P).double(), torch.tensor(S_Q).double()
    js = step_value("fgan", "js")(s_p, s_q)
    torch.testing.assert_close(js, step_value("logistic", "js")(s_p, s_q) + math.log(2))
