"""The chain's contract: truth within stated errors, refusals that change nothing, folders that go on bit for bit."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from vestige.chains import STRATEGIES, Chain, ChainLimits, gaussians
from vestige.core.errors import InputError, NotFitted, StoreError, UnknownName, VestigeWarning
from vestige.ratios.divergences import Gaussian, gaussian_divergence
from vestige.store import encode

N = 1500
BED = gaussians(2)
FEW = {"names": ["kl", "js"]}
QUICK = {
    "anchored": FEW | {"epochs": 4, "warm_epochs": 2, "min_steps": 40, "folds": 2, "wide": 8, "wide_epochs": 2},
    "keyframe": FEW | {"estimator": "quadratic", "folds": 2, "threshold": 0.005},
    "every-step": FEW | {"first_epochs": 5, "epochs": 3, "lambda_c": 0.1},
    "vestige": FEW | {"estimator": "quadratic", "folds": 2},
}
every_strategy = pytest.mark.parametrize("name", sorted(STRATEGIES))
quiet = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")


def normal(n, seed, shift=0.0, scale=1.0, d=2):
    return shift + scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def walked(chain, steps, n=200):
    """Two tasks, the second of which arrives at step 2."""
    for t in range(1, steps + 1):
        real = {"a": normal(n, 0)} if t == 1 else {7: normal(n, 1, 3.0)} if t == 2 else None
        model = {"a": normal(n, 10 + t, 0.1 * t)} | ({7: normal(n, 20 + t, 3 + 0.1 * t)} if t > 1 else {})
        chain.step(real, model, seed=t)
    return chain


def same(a, b):
    left, right = a.state()[1], b.state()[1]
    assert left.keys() == right.keys()
    assert all(torch.equal(left[key], right[key]) for key in left)
    assert encode(a.report_) == encode(b.report_)


@quiet
def test_anchored_divergences_are_true_within_three_errors_and_averages_are_means():
    bed = gaussians(2, multi_task=True)
    names = ("kl", "reverse_kl", "js", "hellinger2")
    chain = Chain(names=names, preset="lean")
    for t in (1, 2, 3):
        chain.step({t: bed.real(t, N, 0)}, {i: bed.model(t, i, N, 0) for i in range(1, t + 1)})
    table = chain.divergences(names)
    assert len(table) == 4 * 4
    for row in table.itertuples():
        truth = bed.true(row.divergence, 3, None if row.task == "average" else row.task)
        assert abs(row.value - truth) < 3 * row.std_error + 0.004, row
        assert row.low < row.value < row.high
        assert row.depth == (1 if row.task == 3 else 2)
    for name in names:
        own = table[table.divergence == name]
        tasks, average = own[own.task != "average"], own[own.task == "average"].iloc[0]
        assert average.value == pytest.approx(tasks.value.mean())
        assert average.std_error == pytest.approx(np.sqrt((tasks.std_error**2).sum()) / 3)


def test_after_the_data_has_left_the_ratio_is_still_that_of_the_data():
    p, q = Gaussian.isotropic(0.0, 1.0, 2), Gaussian.isotropic(0.6, 0.8, 2)
    chain = Chain(wide=16, wide_epochs=10)
    chain.step({0: normal(4000, 0)}, {0: normal(4000, 1, 0.2)})
    chain.step(model={0: normal(4000, 2, 0.6, 0.8)})
    x = normal(300, 3, 0.3, 0.7)
    truth = p.log_prob(x) - q.log_prob(x)
    assert float((chain.log_ratio(x, 0) - truth).abs().mean()) < 0.12
    assert isinstance(chain.log_ratio(x.numpy(), 0), np.ndarray)
    w, samples = chain.weights(0), normal(4000, 2, 0.6, 0.8)
    assert float(w.mean()) == pytest.approx(1)
    assert float((w[:, None] * samples).mean(0).abs().max()) < 0.1  # the mean of p; that of q is 0.6
    anchors, v = chain.anchor_samples(0)
    assert torch.equal(anchors, normal(4000, 1, 0.2))
    torch.testing.assert_close(v @ anchors, normal(4000, 0).mean(0), atol=5e-3, rtol=0)
    row = chain.divergences(["kl"]).iloc[0]
    assert abs(row.value - gaussian_divergence("kl", p, q)) < 3 * row.std_error


@pytest.mark.slow
def test_without_drift_there_is_nothing_to_see():
    chain = Chain(wide=16, wide_epochs=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for t in range(3):
            chain.step({0: normal(N, 100)} if t == 0 else None, {0: normal(N, t)})
    kl, js = (chain.divergences([name]).iloc[0] for name in ("kl", "js"))
    assert abs(kl.value) < 0.01
    assert kl.low < 0.005
    assert kl.high < 0.03
    assert js.verdict == "ok"


def test_keyframes_follow_a_long_walk_and_advance_only_when_they_must():
    p = Gaussian.isotropic(0.0, 1.0, 2)
    chain, depths = Chain("keyframe", preset="lean", epochs=8, warm_epochs=4, folds=2), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VestigeWarning)
        for t in range(1, 7):
            report = chain.step({0: normal(N, 50)} if t == 1 else None, {0: normal(N, t, 0.2 * t)})
            depths.append(report.tasks[0].depth)
    assert depths[0] == 1
    assert 2 < depths[-1] < 6
    for name in ("js", "hellinger2", "reverse_kl"):
        row = chain.divergences([name]).iloc[0]
        truth = gaussian_divergence(name, p, Gaussian.isotropic(1.2, 1.0, 2))
        assert abs(row.value - truth) < max(4 * row.std_error, 0.15 * truth), row


@quiet
def test_the_papers_chain_multiplies_ratios_of_neighbours():
    chain = Chain("every-step", names=["kl"])
    for t in range(1, 5):
        report = chain.step({1: BED.real(1, 4000, 0)} if t == 1 else None, {1: BED.model(t, 1, 4000, 0)})
    assert report.tasks[0].depth == 4
    kl = chain.divergences(["kl"]).iloc[0]
    assert abs(kl.value / BED.true("kl", 4) - 1) < 0.25
    x = BED.model(4, 1, 4000, 0)
    assert float(chain.log_ratio(x, 1).exp().mean()) == pytest.approx(1, abs=1e-9)  # Eq. 7's normaliser
    torch.testing.assert_close(chain.weights(1), chain.log_ratio(x, 1).exp())


def test_options_may_change_a_preset():
    strategy = Chain("every-step", preset="paper", lambda_c=0.1, epochs=7).strategy
    assert (strategy.learning_rate, strategy.epochs, strategy.lambda_c) == (2e-5, 7, 0.1)
    with pytest.raises(UnknownName, match="preset"):
        Chain("every-step", preset="papr")


@quiet
@every_strategy
def test_a_chain_goes_on_from_its_folder_with_the_same_bits(name, tmp_path):
    straight = walked(Chain(name, **QUICK[name]), 2)
    straight.save(tmp_path)
    resumed = Chain.load(tmp_path)
    same(resumed, straight)
    for chain in (straight, resumed):
        chain.step(model={"a": normal(200, 13, 0.1 * 3), 7: normal(200, 23, 3 + 0.1 * 3)}, seed=3)
    same(resumed, straight)
    assert resumed.tasks == ("a", 7)
    assert torch.equal(resumed.log_ratio(normal(20, 5), "a"), straight.log_ratio(normal(20, 5), "a"))
    assert resumed.divergences().equals(straight.divergences())


@quiet
@every_strategy
def test_no_value_of_the_data_is_in_the_folder(name, tmp_path):
    n = 300
    real = 1000 + normal(n, 0)
    chain = Chain(name, **QUICK[name])
    chain.step({"a": real}, {"a": 1000 + normal(n, 1, 0.1)})
    for moment in ("arrival", "after"):
        chain.save(tmp_path / moment)
        text = b"".join(path.read_bytes() for path in sorted((tmp_path / moment).iterdir()))
        for kind in ("f8", "f4"):
            size = int(kind[1])
            wanted = np.unique(real.numpy().astype(kind).view(f"u{size}"))
            generated = (1000 + normal(n, 1, 0.1)).numpy().astype(kind).view(f"u{size}")
            for offset in range(size):
                words = np.frombuffer(text[offset : offset + (len(text) - offset) // size * size], f"<u{size}")
                assert not np.isin(wanted, words).any()
                if kind == "f8" and moment == "arrival" and np.isin(generated, words).any():
                    break  # the scan does find what is there
            else:
                assert kind == "f4" or moment == "after" or name == "vestige"  # which keeps no generated sample
        digits = [repr(float(v)) for v in real.flatten()[:50]]
        assert not any(d.encode() in text for d in digits)
        chain.step(model={"a": 1000 + normal(n, 2, 0.2)})


GOOD = {"a": normal(150, 31), 7: normal(150, 32, 3.0)}
REFUSED = {
    "real data of a task that has left": ({"a": normal(150, 0)}, GOOD, "seen at step 1 and has left"),
    "no samples of a known task": (None, {"a": GOOD["a"]}, "none for 7"),
    "an unknown task": (None, GOOD | {"b": normal(150, 0)}, "task 'b'"),
    "no samples of a new task": ({"b": normal(150, 0)}, GOOD, "none for 'b'"),
    "wrong width": (None, GOOD | {7: normal(150, 0, d=3)}, "2 features wide"),
    "wrong width of new data": ({"b": normal(150, 0, d=3)}, GOOD | {"b": normal(150, 0)}, "2 features wide"),
    "too few": (None, GOOD | {7: normal(99, 0)}, "at least 100 samples"),
    "too few real": ({"b": normal(20, 0)}, GOOD | {"b": normal(150, 0)}, "at least 100 samples"),
    "not a number": (None, GOOD | {7: torch.full((150, 2), float("nan"))}, "finite"),
    "infinite data": ({"b": torch.full((150, 2), float("inf"))}, GOOD | {"b": normal(150, 0)}, "finite"),
    "nothing": (None, None, "none for 'a', 7"),
    "a task called average": ({"average": normal(150, 0)}, GOOD | {"average": normal(150, 0)}, "other than 'average'"),
    "a task that is no name": ({1.5: normal(150, 0)}, GOOD | {1.5: normal(150, 0)}, "whole number"),
}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VestigeWarning)
        walked(Chain("every-step", **QUICK["every-step"]), 2).save(folder)
    return folder


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_one_sentence_and_changes_nothing(case, known):
    real, model, says = REFUSED[case]
    chain = Chain.load(known)
    with pytest.raises(InputError, match=says) as refusal:
        chain.step(real, model)
    assert str(refusal.value).endswith("instead.")
    same(chain, Chain.load(known))


def test_other_doors_refuse_too(known, tmp_path):
    chain = Chain.load(known)
    with pytest.raises(InputError, match="known one"):
        chain.log_ratio(normal(5, 0), "b")
    with pytest.raises(InputError, match="2 features wide"):
        chain.log_ratio(normal(5, 0, d=3), "a")
    with pytest.raises(UnknownName, match="names"):
        chain.divergences(["alpha(0.3)"])
    for call in (Chain().divergences, lambda: Chain().weights("a"), lambda: Chain().log_ratio(normal(5, 0), "a")):
        with pytest.raises(NotFitted):
            call()
    with pytest.raises(InputError, match="given at the first step"):
        Chain().step()
    with pytest.raises(UnknownName, match="Did you mean 'anchored'"):
        Chain("anchord")
    with pytest.raises(UnknownName, match="options"):
        Chain(lambda_c=1.0)
    with pytest.raises(InputError, match="threshold"):
        Chain("keyframe", threshold=-1.0)
    with pytest.raises(StoreError, match="does not exist"):
        Chain.load(tmp_path)


def test_a_failure_inside_a_step_changes_nothing(known, monkeypatch):
    chain = Chain.load(known)

    def breaks(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(type(chain.strategy), "step", breaks)
    with pytest.raises(RuntimeError):
        chain.step(model=GOOD)
    monkeypatch.undo()
    same(chain, Chain.load(known))


def test_a_chain_that_has_not_begun_can_be_stored(tmp_path):
    Chain("keyframe", threshold=0.5, level=0.9, names=["js"], limits=ChainLimits(ess=0.5)).save(tmp_path)
    chain = Chain.load(tmp_path)
    assert (chain.strategy.threshold, chain.level, chain.names, chain.limits.ess) == (0.5, 0.9, ("js",), 0.5)
    assert json.loads((tmp_path / "chain.json").read_text())["fields"]["report"] is None


def test_a_chain_of_the_first_edition_is_refused_with_a_sentence_that_says_what_to_do():
    folder = Path(__file__).parent / "first_edition"
    with pytest.raises(StoreError, match=r"chain\.json was written by Vestige 0\.1\.0.*or begin anew"):
        Chain.load(folder)


@pytest.mark.slow
def test_a_poor_first_generator_is_warned_of_at_arrival_and_doubted_later():
    chain = Chain(**QUICK["anchored"])
    with pytest.warns(VestigeWarning, match="from the next step on, the anchor samples are worth"):
        chain.step({0: normal(N, 0)}, {0: normal(N, 1, 1.0)})
    assert chain.divergences(["js"]).verdict[0] == "ok"
    with pytest.warns(VestigeWarning, match="are worth"):
        chain.step(model={0: normal(N, 2, 0.8)})
    js = chain.divergences(["js"]).iloc[0]
    assert js.verdict == "at least"
    assert "are worth" in js.reason
    truth = gaussian_divergence("js", Gaussian.isotropic(0.0, 1.0, 2), Gaussian.isotropic(0.8, 1.0, 2))
    assert abs(js.value - truth) < 4 * js.std_error


@pytest.mark.slow
@quiet
def test_a_first_generator_that_misses_the_data_is_refused():
    chain = Chain(**QUICK["anchored"])
    chain.step({0: normal(N, 0)}, {0: normal(N, 1, 0.3, 0.4)})
    chain.step(model={0: normal(N, 2, 0.1, 0.8)})
    table = chain.divergences(["js", "kl"])
    assert table.value.isna().all()
    assert (table.verdict == "refused").all()
    assert table.reason.str.startswith("The ").all()


@quiet
def test_the_same_seed_gives_the_same_bits_and_arguments_stay_as_they_are():
    p, q = normal(300, 0), normal(300, 1, 0.2)
    copies = p.clone(), q.clone()
    a, b = (Chain(**QUICK["anchored"]) for _ in range(2))
    for chain in (a, b):
        chain.step({0: p}, {0: q}, seed=3)
    same(a, b)
    assert torch.equal(p, copies[0])
    assert torch.equal(q, copies[1])
    q += 1  # what the chain keeps is its own
    assert torch.equal(a.anchor_samples(0)[0], copies[1])


@pytest.mark.slow
@pytest.mark.full_training
@quiet
def test_the_accuracy_of_the_default_on_drifting_gaussians():
    allowed = {5: {"kl": 0.05, "js": 0.05, "hellinger2": 0.05, "reverse_kl": 0.08}}
    allowed[10] = allowed[5] | {"kl": 0.06}
    found = {t: {name: [] for name in names} for t, names in allowed.items()}
    for seed in range(5):
        chain = Chain()
        for t in range(1, 11):
            chain.step(
                {1: BED.real(1, 10_000, seed)} if t == 1 else None, {1: BED.model(t, 1, 10_000, seed)}, seed=seed
            )
            if t in found:
                for row in chain.divergences().iloc[:4].itertuples():
                    found[t][row.divergence].append(row.value)
    for t, names in allowed.items():
        for name, share in names.items():
            assert abs(np.mean(found[t][name]) / BED.true(name, t) - 1) < share, (t, name)
    assert np.std(found[10]["kl"], ddof=1) < 0.2
