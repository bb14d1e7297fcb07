"""The paper's chain: Eq. 8, 10 and 12 and the objectives against formulas written out; ensembles; presets."""

import dataclasses
import math

import pytest
import torch

from vestige.chains import Chain, gaussians
from vestige.chains.every_step import CRITICS, ESTIMATORS, EveryStep, TaskRows, fresh, grown, objective, psi, step_value
from vestige.ratios.divergences import get

BED = gaussians(2)
quiet = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
QUICK = {"first_epochs": 6, "epochs": 3, "batch_size": 200, "names": ["kl", "js"]}


def walk(chain, steps, n, seed=0):
    for t in range(1, steps + 1):
        chain.step({1: BED.real(1, n, seed)} if t == 1 else None, {1: BED.model(t, 1, n, seed)}, seed=seed)
    return chain


def hidden(chain):
    return chain.state()[1]["state.layers.0"]


OTHERS = ("kliep", "logistic")  # which other tests of training are about


@quiet
@pytest.mark.parametrize(
    "estimator", ["lsif", "fgan", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_every_loss_follows_the_drift(estimator):
    chain = walk(
        Chain("every-step", estimator=estimator, names=["kl", "js", "reverse_kl"], learning_rate=3e-3), 3, 3000
    )
    for row in chain.divergences(["js", "reverse_kl", "kl"]).iloc[:3].itertuples():
        truth = BED.true(row.divergence, 3)
        for view in (row.value, row.running, row.anchored):
            assert abs(view / truth - 1) < 0.45, row
    assert row.depth == 3


def test_the_preset_is_appendix_a2():
    for preset, lr, lambda_c, held_out in (("paper", 2e-5, 0.0, 0.2), ("paper-images", 1e-5, 1.0, 0.5)):
        s = Chain("every-step", preset=preset).strategy
        assert (s.estimator, s.hidden, s.batch_size) == ("kliep", (256, 256), 2000)
        assert (s.first_epochs, s.epochs) == (1000, 2000)
        assert (s.learning_rate, s.lambda_c, s.cosine, s.members, s.held_out) == (lr, lambda_c, False, 1, held_out)


@quiet
def test_the_penalty_grows_with_the_number_of_tasks_and_spares_new_ones(monkeypatch):
    seen, real_train = [], EveryStep.train

    def spy(self, layers, p, q, strengths, **options):
        seen.append(strengths)
        return real_train(self, layers, p, q, strengths, **options)

    monkeypatch.setattr(EveryStep, "train", spy)
    bed, chain = gaussians(2, multi_task=True), Chain("every-step", lambda_c=0.5, **QUICK)
    for t in (1, 2, 3):
        chain.step({t: bed.real(t, 200, 0)}, {i: bed.model(t, i, 200, 0) for i in range(1, t + 1)})
    assert seen == [[0.0], [1.0, 0.0], [1.5, 1.5, 0.0]]  # lambda_c t, for tasks that have a step before


@quiet
def test_members_are_chains_of_their_own_whose_mean_is_normalised(tmp_path):
    chain = walk(Chain("every-step", members=3, resample=True, **QUICK), 2, 400)
    q = BED.model(2, 1, 400, 0)
    assert float(chain.log_ratio(q, 1).exp().mean()) == pytest.approx(1, abs=1e-9)  # Eq. 6 for the mean as well
    own = chain._state.member_log_ratios(0, q)
    torch.testing.assert_close(own.exp().mean(1), torch.ones(3, dtype=torch.float64))
    mean = own.mean(0)
    torch.testing.assert_close(chain.log_ratio(q, 1), mean - mean.exp().mean().log())
    row = chain.divergences(["kl"]).iloc[0]
    each = (own.exp() * own).mean(1)
    assert row.spread == pytest.approx(float(each.std()))
    assert row.spread > 0
    assert chain.report_.tasks[0].members == 3
    chain.save(tmp_path)
    again = Chain.load(tmp_path)
    for own in (chain, again):
        own.step(model={1: BED.model(3, 1, 400, 0)}, seed=5)
    assert torch.equal(again.log_ratio(q, 1), chain.log_ratio(q, 1))
    assert again.divergences().equals(chain.divergences())
    assert again.strategy == chain.strategy


S_P = [[0.3, -0.2, 1.1], [0.0, 0.5, -0.7]]
S_Q = [[-0.4, 0.2], [0.9, -1.3]]


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


CASES = [(e, "kl") for e in ESTIMATORS if e != "fgan"] + [("fgan", critic) for critic in CRITICS]


@pytest.mark.parametrize(("estimator", "critic"), CASES)
def test_the_value_is_the_formula_for_every_member(estimator, critic):
    found = step_value(torch.tensor(S_P).double(), torch.tensor(S_Q).double(), estimator, critic)
    expected = [by_hand(estimator, critic, p, q) for p, q in zip(S_P, S_Q, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("estimator", "critic"), CASES)
def test_it_is_maximal_at_the_ratio_of_the_two_samples(estimator, critic):
    p, q = torch.tensor([0, 0, 0, 1, 2, 2]), torch.tensor([0, 1, 1, 1, 2, 2])  # a law on three points, as counts
    log_r = torch.log(torch.tensor([3 / 1, 1 / 3, 2 / 2], dtype=torch.float64)).requires_grad_()

    def value(at):
        return step_value(at[p][None], at[q][None], estimator, critic).sum()

    (slope,) = torch.autograd.grad(value(log_r), log_r)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-6, rtol=0)
    best = float(value(log_r).detach())
    for i in range(3):
        moved = log_r.detach().clone()
        moved[i] += 0.3
        assert float(value(moved)) < best - 1e-4


def test_with_js_the_critic_is_the_logistic_loss():
    s_p, s_q = torch.tensor(S_P).double(), torch.tensor(S_Q).double()
    js = step_value(s_p, s_q, "fgan", "js")
    torch.testing.assert_close(js, step_value(s_p, s_q, "logistic") + math.log(2))


def draw(n, seed, d=1, members=1):
    return torch.randn(members, n, d, generator=torch.Generator().manual_seed(seed))


def four():
    return [draw(50, i, members=2)[:, :, 0].double() for i in range(4)]


def rows(x):
    return TaskRows(x, torch.zeros(x.shape[:2]))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_objective_is_eq_10_with_the_penalty_subtracted(estimator):
    on_p, on_q, psi_before_p, psi_before_q = four()
    log_psi_before, strength = torch.tensor([[0.3], [-0.2]]).double(), 2.0  # log Psi_{t-1}(X_{t-1})
    before = psi_before_p - log_psi_before, psi_before_q - log_psi_before
    found = objective(on_p, on_q, *before, strength, estimator)
    for m in range(2):
        s_p, s_q = on_p[m] - psi_before_p[m] + log_psi_before[m], on_q[m] - psi_before_q[m] + log_psi_before[m]
        inverse = (on_q[m] - psi_before_q[m]).exp().mean()  # Psi^-1_t(X_t)
        penalty = (inverse * log_psi_before[m].exp() / on_q[m].exp().mean() - 1) ** 2
        torch.testing.assert_close(found[m : m + 1], step_value(s_p[None], s_q[None], estimator) - strength * penalty)
    free = objective(on_p, on_q, *before, 0.0, estimator)
    assert bool((free > found).all())


def test_constants_in_psi_do_not_matter_to_kliep():
    on_p, on_q, before_p, before_q = four()
    plain = objective(on_p, on_q, before_p, before_q, 1.0, "kliep")
    torch.testing.assert_close(objective(on_p + 3, on_q + 3, before_p, before_q, 1.0, "kliep"), plain)


def test_growth_keeps_the_outputs_of_old_tasks_and_starts_new_ones_at_zero():
    layers = grown(fresh([2, 8, 8], [0, 1]), 1)
    layers[-2] = layers[-2] + 1.0
    more = grown(layers, 3)
    x = draw(10, 0, 2, members=2)
    assert torch.equal(psi(layers, x, 0), psi(more, x, 0))
    assert torch.equal(psi(more, x, 2), torch.zeros(2, 10))
    assert not torch.equal(layers[0][0], layers[0][1])  # each member from its own seed


@pytest.mark.parametrize("held_out", [0.0, 0.3])
@pytest.mark.parametrize("estimator", ["kliep", "logistic"])
def test_training_finds_the_ratio_of_two_gaussians(held_out, estimator):
    p, q = draw(2000, 0) + 0.5, draw(2000, 1)  # log r = x/2 - 1/8, KL = 1/8
    strategy = EveryStep(estimator=estimator, batch_size=200, held_out=held_out, patience=5)
    start = grown(fresh([1, 16], [0]), 1)
    layers = strategy.train(start, [rows(p)], [rows(q)], [0.0], epochs=30, seeds=[0])
    x = torch.linspace(-1, 1.5, 6)[None, :, None]
    out = (psi(layers, x, 0) - psi(layers, q, 0).exp().mean().log())[0]
    torch.testing.assert_close(out, x[0, :, 0] / 2 - 1 / 8, atol=0.15, rtol=0)
    assert all(torch.equal(a, b) for a, b in zip(start, grown(fresh([1, 16], [0]), 1), strict=True))


@pytest.mark.parametrize("resample", [False, True])
@pytest.mark.parametrize("held_out", [0.0, 0.3])
def test_members_trained_as_one_are_those_trained_one_by_one(held_out, resample):
    # members stop early at epochs of their own
    strategy = EveryStep(batch_size=50, held_out=held_out, patience=2, resample=resample)
    seeds = [3, 4, 5]
    p, q = (  # two tasks; data of their own, and a ratio to start from; float64, as Adam magnifies rounding
        [TaskRows(draw(n, task, 2, 3).double(), draw(n, 5, 1, 3)[:, :, 0].double()) for task in range(2)]
        for n in (240, 200)
    )
    start = [x.double() for x in grown(fresh([2, 8], seeds), 2)]
    together = strategy.train(start, p, q, [0.0, 0.7], epochs=12, seeds=seeds)
    for k, seed in enumerate(seeds):
        own = slice(k, k + 1)
        alone = strategy.train(
            [x[own] for x in start],
            *([TaskRows(r.x[own], r.before[own]) for r in side] for side in (p, q)),
            [0.0, 0.7],
            epochs=12,
            seeds=[seed],
        )
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[own], b, atol=1e-8, rtol=1e-8)
    assert not torch.allclose(together[0][0], together[0][1])


def test_early_stopping_keeps_the_best_rows_held_out():
    p, q = draw(60, 0), draw(60, 1)  # no difference: whatever is learnt is noise
    stops = EveryStep(learning_rate=3e-2, cosine=False, batch_size=20, held_out=0.5, patience=3)
    start = grown(fresh([1, 32, 32], [0]), 1)
    stopped = stops.train(start, [rows(p)], [rows(q)], [0.0], epochs=60, seeds=[0])
    goes_on = dataclasses.replace(stops, held_out=0.0)
    never = goes_on.train(start, [rows(p)], [rows(q)], [0.0], epochs=60, seeds=[0])
    sizes = [float(psi(layers, draw(500, 2), 0).std()) for layers in (stopped, never)]
    assert sizes[0] < sizes[1] / 3
