"""Chains by vestiges: the truth within the interval, nothing of a single row in the state, tasks without samples."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

import vestige as vs
from vestige.chains import Chain, gaussians
from vestige.chains.from_vestige import FITTING
from vestige.chains.strategy import TaskLogRatios
from vestige.core.errors import InputError, NotFitted
from vestige.ratios.divergences import FAMILY
from vestige.store import encode

N = 300
BED = gaussians(2)
SHORT = {"epochs": 4, "min_steps": 40, "folds": 2, "wide": 8, "wide_epochs": 2}
quiet = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")


def table(n, seed, shift=0.0):
    g = np.random.default_rng(seed)
    x = g.normal(size=n) + shift
    kind = np.where(g.random(n) < 1 / (1 + np.exp(-x)), "cat", "dog")
    return pd.DataFrame(
        {"height": x, "kind": kind, "weight": np.where(g.random(n) < 0.1, np.nan, x + g.normal(size=n))}
    )


@pytest.fixture(scope="module")
def drifted():
    """A chain that kept a vestige of Gaussian data, and what each later step of a drifting model found."""
    chain = Chain("vestige", names=("kl", "js", "hellinger2", "total_variation"), **SHORT)
    first = chain.step({"a": BED.real(1, 1500, 0)})
    found = {t: chain.step(model={"a": BED.model(t, 1, 1500, 0)}, seed=t).tasks[0] for t in (1, 4, 7)}
    return chain, first, found


@quiet
def test_the_truth_of_a_drift_lies_within_the_interval(drifted):
    _, first, found = drifted
    assert first.tasks == ()  # there was nothing to judge
    for t, own in found.items():
        for name in ("js", "hellinger2"):
            e, truth = own.estimates[name], BED.true(name, t)
            assert e.low <= truth <= e.high, (t, name, e)
            assert abs(e.value - truth) < 0.15 * truth + 0.01
            assert e.low <= e.details["from_draws"][0] + 1e-12  # widened by the error of the draws
        kl = own.estimates["kl"]
        assert (kl.verdict, kl.low <= BED.true("kl", t)) == ("at least", True)
        assert (own.depth, own.born, own.anchors > 0) == (2, 1, True)
    assert found[7].estimates["js"].low > 0.01


def test_beside_the_divergences_stand_a_test_and_the_fid_of_the_rows(drifted):
    chain, _, found = drifted
    for t, own in found.items():
        with_rows = vs.metrics.fid(BED.real(1, 1500, 0), BED.model(t, 1, 1500, 0)).value
        assert own.fid.value == pytest.approx(with_rows, abs=own.fid.std_error / 50)  # moments are rounded
        assert own.fid.low < own.fid.value < own.fid.high
        assert own.p_value == chain.vestige("a").test.test(BED.model(t, 1, 1500, 0)).p_value
    assert found[1].p_value > 1e-3
    assert found[4].p_value < 1e-6


@quiet
def test_while_the_data_is_here_numbers_come_from_the_data_itself():
    p, q = BED.real(1, N, 0), BED.model(5, 1, N, 0)
    short = {"names": ("kl", "js"), **SHORT}
    arrival = Chain("vestige", **short).step({"a": p}, {"a": q}, seed=3).tasks[0]
    anchored = Chain("anchored", **short).step({"a": p}, {"a": q}, seed=3).tasks[0]
    for name in ("kl", "js"):
        assert arrival.estimates[name].value == anchored.estimates[name].value
        assert "from_draws" not in arrival.estimates[name].details
    assert arrival.depth == 1
    assert arrival.p_value < 1e-6


@pytest.mark.slow
@quiet
def test_a_step_may_have_samples_of_some_tasks_and_none_of_a_new_one():
    chain = Chain("vestige", names=("js",), **SHORT)
    chain.step({"a": BED.real(1, N, 0)}, {"a": BED.model(1, 1, N, 0)})
    second = chain.step({"b": BED.real(1, N, 1) + 3})
    assert second.tasks == ()
    assert chain.divergences().empty
    assert chain.tasks == ("a", "b")
    third = chain.step(model={"b": BED.model(2, 1, N, 1) + 3})
    assert [own.task for own in third.tasks] == ["b"]
    assert set(chain.divergences().task) == {"b", "average"}
    with pytest.raises(InputError, match="one with samples in the last step"):
        chain.weights("a")
    with pytest.raises(NotFitted, match=r"vs\.weigh\(chain\.vestige\(task\), rows\)"):
        chain.log_ratio(BED.real(1, 20, 0), "a")
    with pytest.raises(InputError, match="given for a known task, or 'real' for a new one"):
        chain.step()
    with pytest.raises(InputError, match="seen at step 1 and has left"):
        chain.step({"a": BED.real(1, N, 0)})
    with pytest.raises(InputError, match="known or new tasks"):
        chain.step(model={"c": BED.real(1, N, 0)})


@quiet
def test_tasks_do_not_touch_each_other():
    rows = {"a": BED.real(1, N, 0), "b": BED.real(1, N, 1)}
    together, alone = (Chain("vestige", names=("js",), estimator="quadratic", folds=2) for _ in range(2))
    together.step(rows)
    alone.step({"a": rows["a"]})
    new = {"a": BED.model(3, 1, N, 0), "b": BED.model(2, 1, N, 1)}
    one = together.step(model=new).tasks[0]
    assert encode(one) == encode(alone.step(model={"a": new["a"]}).tasks[0])


@quiet
def test_ratios_and_weights_of_the_last_step_are_there_until_the_chain_is_closed(drifted, tmp_path):
    chain = drifted[0]
    w, samples = chain.weights("a"), BED.model(7, 1, 1500, 0)
    assert float(w.mean()) == pytest.approx(1)
    truth = float(BED.real(1, 1500, 0).mean())
    assert abs(float((w[:, None] * samples).mean()) - truth) < abs(float(samples.mean()) - truth)
    assert chain.log_ratio(samples.numpy(), "a").shape == (1500,)
    chain.save(tmp_path)
    again = Chain.load(tmp_path)
    with pytest.raises(InputError, match="samples in the last step"):
        again.weights("a")
    with pytest.raises(NotFitted):
        again.log_ratio(samples, "a")
    draws, v = again.anchor_samples("a")
    assert float(v.sum()) == pytest.approx(1)
    torch.testing.assert_close(v @ draws, BED.real(1, 1500, 0).mean(0), atol=0.08, rtol=0)


@quiet
def test_nothing_of_a_single_row_is_stored_of_what_was_new_either(tmp_path):
    new = 1000 + BED.model(3, 1, 300, 0)
    chain = Chain("vestige", names=("js",), **SHORT)
    chain.step({"a": 1000 + BED.real(1, 300, 0)})
    before = chain.kept()
    chain.step(model={"a": new})
    assert chain.kept() == before
    assert not any(300 in shape for shape in chain.kept().values())
    chain.save(tmp_path)
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for kind in ("<f8", "<f4"):
        size = int(kind[2:])
        wanted = np.unique(new.numpy().astype(kind).view(f"u{size}"))
        for offset in range(size):
            words = np.frombuffer(data[offset : offset + (len(data) - offset) // size * size], f"<u{size}")
            assert not np.isin(wanted, words).any()


@quiet
def test_tables_are_read_as_the_first_was():
    chain = Chain("vestige", names=("js",), **SHORT)
    chain.step({"a": table(N, 0)})
    same = chain.step(model={"a": table(N, 1)[["weight", "kind", "height"]]}).tasks[0]
    assert same.p_value > 1e-3
    assert any("another order" in note for note in same.notes)
    moved = chain.step(model={"a": table(N, 2, 1.0)}).tasks[0]
    assert moved.p_value < 1e-6
    assert moved.estimates["js"].value > same.estimates["js"].value + 0.03
    assert len(chain.log_ratio(table(30, 3), "a")) == 30
    before = encode(chain.report_)
    with pytest.raises(InputError, match="no 'kind'"):
        chain.step(model={"a": table(N, 3).rename(columns={"kind": "species"})})
    with pytest.raises(InputError, match="at least 100 rows"):
        chain.step(model={"a": table(99, 3)})
    assert encode(chain.report_) == before


@quiet
def test_of_many_rows_a_ratio_sees_some_and_the_test_all():
    chain = Chain("vestige", names=("js",), most_rows=200, **SHORT)
    chain.step({"a": BED.real(1, N, 0)})
    own = chain.step(model={"a": BED.model(4, 1, 900, 0)}).tasks[0]
    assert own.estimates["js"].n == 400
    assert own.p_value == chain.vestige("a").test.test(BED.model(4, 1, 900, 0)).p_value
    assert len(chain.weights("a")) == 900


def test_a_divergence_that_no_distance_bounds_is_refused_and_every_other_has_a_verdict(drifted):
    chain = drifted[0]
    errors = chain.vestige("a").errors
    g = torch.Generator().manual_seed(0)
    p, q = (0.3 * torch.randn(400, generator=g, dtype=torch.float64) + s for s in (0.05, -0.05))
    weights = torch.full((400,), 1 / 400, dtype=torch.float64)
    found = TaskLogRatios(q, p, weights, anchors=400, anchors_ess=400.0, fewer=(p, q), errors=errors)
    from vestige.chains.estimates import estimated

    told = estimated(found, [*FAMILY, "alpha(0.3)"], level=0.95, limits=chain.limits)
    assert told["alpha(0.3)"].verdict == "refused"
    assert {told[name].verdict for name in ("kl", "reverse_kl", "jeffreys")} == {"at least"}
    plain = estimated(dataclasses.replace(found, errors=None), ["js"], level=0.95, limits=chain.limits)["js"]
    assert told["js"].low < plain.low or told["js"].low == 0
    assert told["js"].high == pytest.approx((math.sqrt(plain.high) + math.sqrt(errors.limit("js"))) ** 2)


@quiet
def test_the_options_of_the_fit_are_those_of_anchored():
    ours, theirs = Chain("vestige").strategy, Chain("anchored").strategy
    assert all(getattr(ours, name) == getattr(theirs, name) for name in FITTING)
    assert Chain("vestige", preset="fast").strategy.folds == 2
    with pytest.raises(InputError, match=r"most_rows.*Chain\('vestige'\)"):
        Chain("vestige", most_rows=1)
    chain = Chain("every-step", names=("js",), first_epochs=1, epochs=1, hidden=(4,))
    chain.step({"a": BED.real(1, 100, 0)}, {"a": BED.model(1, 1, 100, 0)})
    with pytest.raises(InputError, match="'vestige'"):
        chain.vestige("a")
