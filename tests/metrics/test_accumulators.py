"""What every accumulator promises: chunks, merges and a trip to disk give what one pass gives."""

import numpy as np
import pytest
import torch

from vestige import store
from vestige.core.errors import InputError, StoreError
from vestige.metrics.base import Sums, leave_one_out, merged
from vestige.metrics.fid import FID, fid
from vestige.metrics.inception import InceptionScore, inception_score
from vestige.metrics.mmd import KID, MMD, kid
from vestige.metrics.precision_recall import PRD, PRDC, precision_recall_density_coverage

RNG = np.random.default_rng(0)
P, Q, P_W, Q_W = RNG.normal(size=(200, 4)), 1.3 * RNG.normal(size=(150, 4)) + 0.2, RNG.random(200), RNG.random(150)
CENTRES = PRD.centres(P, Q, clusters=5, runs=2)

# How to make it, and the numbers that `real.compute(fake)` gives.
ACCUMULATORS = {
    "fid": (FID, lambda p, q: [p.compute(q).value]),
    "fid, groups": (lambda: FID(groups=4), lambda p, q: [p.compute(q).value]),
    "kid": (KID, lambda p, q: [p.compute(q).value]),
    "mmd": (lambda: MMD(bandwidth=2.0, frequencies=64), lambda p, q: [p.compute(q).value]),
    "inception": (lambda: InceptionScore(kind="logits"), lambda p, q: [p.compute().value, q.compute().value]),
    "prd": (lambda: PRD(CENTRES), lambda p, q: p.compute(q).precision.tolist()),
    "prdc": (PRDC, lambda p, q: [getattr(p.compute(q), n) for n in ("precision", "recall", "density", "coverage")]),
}
# The function on whole sets, where it computes the same.
FUNCTIONS = {
    "fid": lambda **w: [fid(P, Q, **w).value],
    "fid, groups": lambda **w: [fid(P, Q, **w).value],
    "kid": lambda **w: [kid(P, Q, form="blocks", **w).value],
    "inception": lambda p_weights=None, q_weights=None: [
        inception_score(P, kind="logits", weights=p_weights).value,
        inception_score(Q, kind="logits", weights=q_weights).value,
    ],
    "prdc": lambda **w: [
        getattr(precision_recall_density_coverage(P, Q, **w), n) for n in ("precision", "recall", "density", "coverage")
    ],
}


def chunked(make, x, w, borders):
    parts = np.split(np.arange(len(x)), borders)
    accumulator = make()
    for rows in parts:
        accumulator.update(x[rows], None if w is None else w[rows])
    return accumulator


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ACCUMULATORS)
def test_chunks_and_merges_give_what_one_pass_gives(name, weighted):
    make, numbers = ACCUMULATORS[name]
    p_w, q_w = (P_W, Q_W) if weighted else (None, None)
    once = numbers(make().update(P, p_w), make().update(Q, q_w))
    in_chunks = numbers(chunked(make, P, p_w, [1, 2, 50, 57]), chunked(make, Q, q_w, [149]))
    assert in_chunks == pytest.approx(once, rel=1e-9)

    workers = [chunked(make, P[a:b], None if p_w is None else p_w[a:b], [1]) for a, b in ((0, 3), (3, 90), (90, 200))]
    left = make().merge(workers[0]).merge(workers[1]).merge(workers[2])
    right = workers[2].merge(workers[1].merge(workers[0]))
    for tree in (left, right):
        assert tree.n == 200
        assert numbers(tree, make().update(Q, q_w)) == pytest.approx(once, rel=1e-9)
    if name in FUNCTIONS:
        weights = {"p_weights": p_w, "q_weights": q_w} if weighted else {}
        assert once == pytest.approx(FUNCTIONS[name](**weights), rel=1e-9)


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_the_scale_of_weights_does_not_matter_and_zero_is_absence(name):
    make, numbers = ACCUMULATORS[name]
    once = numbers(make().update(P, P_W), make().update(Q))
    assert numbers(make().update(P, 1e6 * P_W), make().update(Q)) == pytest.approx(once, rel=1e-9)
    with_ghosts = make().update(np.r_[P, 9 + Q[:5]], np.r_[P_W, np.zeros(5)]).update(Q[:3], np.zeros(3))
    assert numbers(with_ghosts, make().update(Q)) == pytest.approx(once, rel=1e-9)


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_saved_and_loaded_it_goes_on(name, tmp_path):
    make, numbers = ACCUMULATORS[name]
    half = make().update(P[:77], P_W[:77])
    half.save(tmp_path / "half.json")
    loaded = type(half).load(tmp_path / "half.json")
    rest = make().update(Q)
    assert numbers(loaded.update(P[77:], P_W[77:]), rest) == numbers(half.update(P[77:], P_W[77:]), rest)
    other = FID if name != "fid" and not name.startswith("fid") else KID
    with pytest.raises(StoreError, match="does not hold a"):
        other.load(tmp_path / "half.json")


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_arguments_are_untouched_and_nothing_is_shared(name):
    make, numbers = ACCUMULATORS[name]
    x = torch.from_numpy(P.copy())
    real, model = make().update(x), make().update(Q)
    before = numbers(real, model)
    assert torch.equal(x, torch.from_numpy(P))
    x.zero_()
    other = make().update(Q[:9])
    real_again = make().merge(real)
    real_again.merge(other)
    assert numbers(real, model) == before


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_refusals(name):
    make, numbers = ACCUMULATORS[name]
    with pytest.raises(InputError, match="finite"):
        make().update(np.full((3, 4), np.nan))
    with pytest.raises(InputError, match="4 features wide"):
        make().update(P).update(P[:, :3])
    with pytest.raises(InputError, match="weights"):
        make().update(P, -P_W)
    with pytest.raises(InputError, match="weights"):
        make().update(P, 1e200 * P_W)
    with pytest.raises(InputError, match="at least 2"):
        numbers(make().update(P[:1]), make().update(Q))
    with pytest.raises(InputError, match="at least 2"):
        numbers(make().update(P, 0 * P_W), make().update(Q))
    if name != "prd":  # whose centres fix the width
        with pytest.raises(InputError, match="an accumulator with"):
            make().update(P).merge(make().update(P[:, :3]))


@pytest.mark.parametrize("name", sorted(set(ACCUMULATORS) - {"prdc"}))
def test_no_row_is_kept(name):
    make, _ = ACCUMULATORS[name]
    _, tensors = store.encode(make().update(P))
    assert tensors
    assert all(len(P) not in tensor.shape for tensor in tensors.values())


def test_turns_go_on_over_chunks_so_errors_do_not_depend_on_them():
    make, borders = (lambda: KID(groups=7)), [1, 5, 6, 100]
    once = make().update(P, P_W).compute(make().update(Q))
    in_chunks = chunked(make, P, P_W, borders).compute(make().update(Q))
    assert in_chunks.std_error == pytest.approx(once.std_error, rel=1e-9)


def test_leave_one_out_merges_all_but_one():
    parts = [Sums({"x": torch.tensor(float(2**i))}) for i in range(5)]
    whole = float(merged(parts)["x"])
    assert whole == 31
    assert [float(rest["x"]) for rest in leave_one_out(parts)] == [31 - 2**i for i in range(5)]
    assert [float(rest["x"]) for rest in leave_one_out(parts[:2])] == [2, 1]


def test_a_stored_state_that_does_not_fit_is_refused(tmp_path):
    full = FID(groups=3).update(P)
    fields, tensors = store.encode(full)
    store.save(tmp_path / "x.json", "accumulator", {"object": fields | {"groups": 1}}, tensors)
    with pytest.raises(StoreError, match="3 groups, not 1"):
        FID.load(tmp_path / "x.json")
    del tensors["summaries_.1.mean"]
    store.save(tmp_path / "x.json", "accumulator", {"object": fields}, tensors)
    with pytest.raises(StoreError, match="mean"):
        FID.load(tmp_path / "x.json")
    store.save(tmp_path / "x.json", "record", {})
    with pytest.raises(StoreError, match="format"):
        FID.load(tmp_path / "x.json")
    with pytest.raises(InputError, match="must be a FID"):
        full.merge(KID(groups=3))
