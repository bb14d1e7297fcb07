"""The paper's chain: its losses, its ensembles, its presets, and several chains at once."""

import pytest
import torch

from vestige.chains import Chain, gaussians, step_together
from vestige.core.errors import InputError

BED = gaussians(2)
quiet = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
QUICK = {"first_epochs": 6, "epochs": 3, "batch_size": 200, "names": ["kl", "js"]}


def walk(chain, steps, n, seed=0):
    for t in range(1, steps + 1):
        chain.step({1: BED.real(1, n, seed)} if t == 1 else None, {1: BED.model(t, 1, n, seed)}, seed=seed)
    return chain


def hidden(chain):
    return chain.state()[1]["state.layers.0"]


@quiet
@pytest.mark.parametrize("estimator", ["kliep", "logistic", "lsif", "fgan"])
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
    import vestige.chains.every_step as module

    seen, real_train = [], module.train

    def spy(layers, p, q, strengths, *rest, **options):
        seen.append(strengths)
        return real_train(layers, p, q, strengths, *rest, **options)

    monkeypatch.setattr(module, "train", spy)
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


@quiet
def test_chains_that_step_together_end_where_each_ends_alone():
    seeds = [0, 1]
    alone = [walk(Chain("every-step", estimator="logistic", **QUICK), 2, 300, seed) for seed in seeds]
    chains = [Chain("every-step", estimator="logistic", **QUICK) for _ in seeds]
    for t in (1, 2):
        real = [{1: BED.real(1, 300, s)} if t == 1 else None for s in seeds]
        reports = step_together(chains, real, [{1: BED.model(t, 1, 300, s)} for s in seeds], seeds=seeds)
    x = BED.model(2, 1, 50, 9)
    for a, b, report in zip(chains, alone, reports, strict=True):
        assert report is a.report_
        torch.testing.assert_close(a.log_ratio(x, 1), b.log_ratio(x, 1), atol=2e-3, rtol=0)
        assert a.divergences().value[0] == pytest.approx(b.divergences().value[0], abs=2e-3)
    assert not torch.equal(hidden(chains[0]), hidden(chains[1]))
    uneven = [{1: BED.model(3, 1, n, 0)} for n in (300, 200)]  # of two shapes: one after the other
    assert [r.step for r in step_together(chains, [None, None], uneven)] == [3, 3]


@quiet
def test_a_refusal_of_one_leaves_all_chains_as_they_were():
    chains = [walk(Chain("every-step", **QUICK), 1, 150, s) for s in (0, 1)]
    before = [hidden(chain).clone() for chain in chains]
    good = {1: BED.model(2, 1, 150, 0)}
    cases = {
        "at least 100 samples": (chains, [None, None], [good, {1: BED.model(2, 1, 50, 0)}], [0, 1]),
        "as many as there are chains": (chains, [None, None], [good], [0, 1]),
        "different ones": ([chains[0], chains[0]], [None, None], [good, good], [0, 1]),
        "at least one chain": ([], [], [], []),
        "same settings": ([chains[0], Chain("every-step", learning_rate=0.1)], [None, None], [good, good], [0, 1]),
    }
    for says, (which, real, model, seeds) in cases.items():
        with pytest.raises(InputError, match=says):
            step_together(which, real, model, seeds=seeds)
    assert all(torch.equal(hidden(c), old) and c.steps == 1 for c, old in zip(chains, before, strict=True))


def test_other_strategies_step_together_one_after_the_other():
    chains = [Chain(estimator="quadratic", folds=2, names=["js"]) for _ in range(2)]
    real, model = [{0: BED.real(1, 200, s)} for s in (0, 1)], [{0: BED.model(1, 1, 200, s)} for s in (0, 1)]
    step_together(chains, real, model)
    alone = Chain(estimator="quadratic", folds=2, names=["js"])
    alone.step(real[1], model[1], seed=1)
    assert alone.report_ == chains[1].report_
