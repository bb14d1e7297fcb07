"""Pairs are two rows of one class; the critic's loss against one taken apart by hand, its gradient by differences."""

import torch
from torch import nn

from vestige_papers.lfiw.dagan import Classes, PairCritic, critic_terms

COUNT = torch.tensor([2, 5, 3])
CLASSES = Classes(COUNT.cumsum(0) - COUNT, COUNT)
LABELS = torch.tensor([0, 0, 1, 1, 1, 1, 1, 2, 2, 2])


def noise(seed=0):
    return torch.Generator().manual_seed(seed)


def test_pairs_are_of_one_class_and_never_a_row_with_itself():
    a, b = CLASSES.pairs(30_000, noise())
    assert torch.equal(LABELS[a], LABELS[b])
    assert not bool((a == b).any())
    # every class a third; within it every ordered pair alike
    counts = torch.zeros(10, 10).index_put_((a, b), torch.ones(len(a)), accumulate=True) / len(a)
    same = LABELS[:, None] == LABELS
    same.fill_diagonal_(False)
    expected = same / (3 * (COUNT * (COUNT - 1))[LABELS][:, None])
    assert float((counts - expected).abs().max()) < 0.012
    assert float((counts.sum(1) - expected.sum(1)).abs().max()) < 0.012


def test_the_same_noise_deals_the_same_pairs():
    one, two, other = (CLASSES.pairs(20, noise(s)) for s in (1, 1, 2))
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])
    assert not torch.equal(one[0], other[0])


def sides(n=6, d=20):
    g = noise(3)
    return [torch.rand(n, d, generator=g) for _ in range(3)]


class Bilinear(nn.Module):
    """x' A a: its gradient in x is A a."""

    def __init__(self, d):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(d, d, generator=noise(4)) / d)

    def forward(self, x, examples):
        return ((x @ self.matrix) * examples).sum(1)


def test_the_loss_of_a_critic_whose_gradient_is_known():
    others, made, examples = sides()
    critic = Bilinear(20)
    terms = critic_terms(critic, others, made, examples, 10.0, noise())
    slopes = (examples @ critic.matrix.T).norm(dim=1)
    penalty = (slopes - 1).square().mean()
    distance = critic(others, examples).mean() - critic(made, examples).mean()
    assert torch.allclose(terms["penalty"], penalty)
    assert torch.allclose(terms["distance"], distance)
    assert torch.allclose(terms["critic"], 10 * penalty - distance)


def test_the_penalty_is_taken_between_the_second_members_of_the_pairs():
    """A convolutional critic: every row's gradient alone, by autograd, at the points that the noise says."""
    critic = PairCritic((1, 5, 4), (3,), seed=0)
    others, made, examples = sides()
    terms = critic_terms(critic, others, made, examples, 3.0, noise(7))
    at = torch.rand(len(made), 1, generator=noise(7))
    total = 0.0
    for i in range(len(made)):
        point = ((1 - at[i]) * made[i] + at[i] * others[i]).requires_grad_()
        (slope,) = torch.autograd.grad(critic(point[None], examples[i : i + 1])[0], point)
        total += (float(slope.norm()) - 1) ** 2 / len(made)
    assert abs(terms["penalty"].item() - total) < 1e-5
    weight = next(critic.parameters())
    (found,) = torch.autograd.grad(terms["critic"], weight)
    step, index = 1e-3, (0, 0, 1, 1)
    with torch.no_grad():
        values = []
        for sign in (1, -1):
            weight[index] += sign * step
            with torch.enable_grad():
                values.append(critic_terms(critic, others, made, examples, 3.0, noise(7))["critic"].item())
            weight[index] -= sign * step
    assert abs(float(found[index]) - (values[0] - values[1]) / (2 * step)) < 2e-3
