"""What is out of reach is said in words, and decides what numbers are worth."""

import math

import pytest
import torch

from vestige.core import Estimate
from vestige.ratios import support
from vestige.ratios.cross_fit import held_out
from vestige.ratios.support import OUT_OF_REACH, Reach, reach, reachable, verdict
from vestige.ratios.weights import diagnose, expectation

N = 1500


def normal(n, d, generator):
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


def turned(x, generator):
    """In random directions: no column knows of the edge."""
    axes = torch.linalg.qr(torch.randn(x.shape[1], x.shape[1], generator=torch.Generator().manual_seed(5)).double())[0]
    return x @ axes


def half(g):
    x = normal(2 * N + 400, 10, g)
    p, q = x[:N], x[N:]
    return turned(p, g), turned(q[q[:, 0] < 0], g)


def quarter(g):
    x = normal(3 * N, 3, g)
    p, q = x[:N], x[N:]
    return turned(p, g), turned(q[(q[:, 0] < 0) | (q[:, 1] < 0)], g)


def cluster(g):
    centres = 6 * torch.eye(5, 6, dtype=torch.float64)
    of_p, of_q = torch.randint(5, (N,), generator=g), torch.randint(4, (N,), generator=g)
    return normal(N, 6, g) + centres[of_p], normal(N, 6, g) + centres[of_q]


def boxes(g):
    return torch.rand(N, 4, generator=g).double(), torch.rand(N, 4, generator=g).double() + 0.15


def category(g):
    one_hot = torch.eye(5, dtype=torch.float64)
    p, q = one_hot[torch.randint(5, (N,), generator=g)], one_hot[torch.randint(4, (N,), generator=g)]
    return torch.cat([p, normal(N, 1, g)], 1), torch.cat([q, normal(N, 1, g)], 1)


def looked(draw, seed=0):
    p, q = draw(torch.Generator().manual_seed(seed))
    found = held_out(p, q)
    return reach(p, q, found.log_ratio_p, found.log_ratio_q)


def poorly_learnt(*case):
    """A case that is found by a poorer ratio as well."""
    return pytest.param(*case, marks=pytest.mark.few_steps)


@pytest.mark.parametrize(
    ("draw", "lost"),
    [
        pytest.param(half, 0.5, marks=pytest.mark.slow),
        (quarter, 0.25),
        poorly_learnt(cluster, 0.2),
        poorly_learnt(boxes, 1 - 0.85**4),
        poorly_learnt(category, 0.2),
    ],
)
def test_a_lost_part_is_found_and_measured(draw, lost):
    found = looked(draw)
    assert not found.complete
    assert found.missed.value == pytest.approx(lost, abs=0.07)
    assert found.missed.low <= lost
    assert found.missed.verdict == "at least" or lost <= found.missed.high
    assert 1 - lost <= found.mean_weight.high
    assert len(found.outside_p) >= 0.6 * lost * N
    assert found.sentences()[0].startswith("The model does not reach ")
    assert draw is boxes or found.made.value == 0


def ring(n, g, width):
    angle = 2 * math.pi * torch.rand(n, generator=g).double()
    return torch.stack([angle.cos(), angle.sin()], 1) * (1 + width * normal(n, 1, g))


@pytest.mark.few_steps
def test_a_ring_that_fills_is_the_mirror():
    g = torch.Generator().manual_seed(0)
    p, q = ring(N, g, 0.05), ring(N, g, 0.05)
    q[: int(0.39 * N)] = torch.rand(int(0.39 * N), 2, generator=g).double() * 1.2 - 0.6
    found = held_out(p, q)
    found = reach(p, q, found.log_ratio_p, found.log_ratio_q)
    assert found.complete
    assert found.made.value == pytest.approx(0.39, abs=0.05)
    assert "of the model lies where the data has no rows." in found.sentences()[0]
    assert (found.outside_q < int(0.39 * N)).double().mean() > 0.97


NEGATIVES = {
    "equal in fifty dimensions": lambda g: (normal(N, 50, g), normal(N, 50, g)),
    "shifted": lambda g: (normal(N, 2, g), normal(N, 2, g) + 1),
    "shifted far": lambda g: (normal(N, 1, g), normal(N, 1, g) + 2),
    "narrower": lambda g: (normal(N, 5, g), 0.7 * normal(N, 5, g)),
    "wider": lambda g: (normal(N, 5, g), 1.4 * normal(N, 5, g)),
    "log-normal": lambda g: (normal(N, 2, g).exp(), (normal(N, 2, g) + 0.4).exp()),
    "unequal sizes": lambda g: (normal(200, 3, g), normal(N, 3, g) + 0.3),
}


@pytest.mark.few_steps  # what is cried, is cried of the rows: a poorer ratio is no excuse
@pytest.mark.parametrize("name", NEGATIVES)
def test_no_wolf_is_cried(name):
    found = looked(NEGATIVES[name])
    assert found.complete
    assert found.made.value == 0
    assert found.sentences() == ()
    assert found.mean_weight.low <= 1 <= found.mean_weight.high


def test_a_badly_fitted_ratio_alone_is_no_lack_of_support():
    """A log-ratio that is far too low everywhere: the mean weight is .4, and nothing is missing."""
    g = torch.Generator().manual_seed(0)
    p, q = normal(N, 2, g), normal(N, 2, g) + 0.5
    log_p, log_q = (0.25 - 0.5 * x.sum(1) - 1 for x in (p, q))
    found = reach(p, q, log_p, log_q)
    assert found.mean_weight.value < 0.5
    assert found.complete
    assert found.mean_weight.high >= 1


def known(**fields):
    nothing, empty = Estimate(0.0, 0.0, verdict="at least"), torch.zeros(0, dtype=torch.int64)
    given = {"missed": nothing, "made": nothing, "far_p": 0.0, "far_q": 0.0} | fields
    mean = given.pop("mean_weight", Estimate(1.0, std_error=0.01))
    return Reach(mean, Estimate(1.0), outside_p=empty, outside_q=empty, **given)


HALF = Estimate(0.48, 0.45, 0.51)


@pytest.mark.parametrize(
    ("name", "missed", "made"),
    [
        ("kl", "at least", "ok"),
        ("pearson_chi2", "at least", "ok"),
        ("reverse_kl", "ok", "at least"),
        ("neyman_chi2", "ok", "at least"),
        ("jeffreys", "at least", "at least"),
        ("js", "ok", "ok"),
        ("hellinger2", "ok", "ok"),
    ],
)
def test_unbounded_divergences_are_at_least(name, missed, made):
    value = Estimate(2.0, 1.5, 2.5, name=name)
    assert verdict(name, value, known()) == value
    assert verdict(name, value, known(missed=HALF)).verdict == missed
    assert verdict(name, value, known(made=HALF)).verdict == made
    if missed == "at least":
        assert "the model does not reach about 48 % of the data" in verdict(name, value, known(missed=HALF)).reason


def test_the_words():
    blurred = Estimate(0.3, 0.25, 0.35, verdict="at least")
    assert known().sentences() == ()
    assert known(missed=HALF, made=HALF).sentences() == (
        "The model does not reach about 48 % of the data.",
        "About 48 % of the model lies where the data has no rows.",
    )
    assert known(missed=blurred, made=blurred).sentences("a.csv", "b.csv") == (
        "b.csv does not reach a part of a.csv, at least 25 %.",
        "At least 25 % of b.csv lies where a.csv has no rows.",
    )


def test_heavy_tails_refuse_what_they_make_infinite():
    value = Estimate(2.0, 1.5, 2.5)
    for name, side in (("kl", "heavy_p"), ("reverse_kl", "heavy_q"), ("jeffreys", "heavy_p"), ("jeffreys", "heavy_q")):
        refused = verdict(name, value, known(**{side: "the tail of feature 0 is too heavy"}))
        assert refused.verdict == "refused"
        assert "infinite or cannot be told" in refused.reason
    assert verdict("kl", value, known(heavy_q="the tail")).verdict == "ok"
    assert verdict("js", value, known(heavy_p="the tail")).verdict == "ok"
    gone = Estimate.refused("No.")
    assert verdict("kl", gone, known(missed=HALF)) == gone


def test_weights_that_do_not_reach_are_never_good():
    good = diagnose(torch.zeros(100))
    assert good.verdict == "good"
    assert reachable(good, known()) == good
    assert reachable(good, known(made=HALF)) == good
    told = reachable(good, known(missed=HALF))
    assert told.verdict == OUT_OF_REACH == "cannot reach part of the data"
    assert "does not reach about 48 % of the data" in told.warnings[0]
    assert reachable(good, known(missed=Estimate(0.97, 0.95, 0.99))).verdict == "unreliable"


@pytest.mark.parametrize(
    ("mean", "error", "verdict"),
    [(0.77, 0.02, "usable with care"), (0.95, 0.001, "good"), (0.77, 0.2, "good"), (1.3, 0.02, "good")],
)
def test_weights_whose_mean_falls_short_of_one_are_not_good(mean, error, verdict):
    good, short = diagnose(torch.zeros(100)), known(mean_weight=Estimate(mean, std_error=error))
    told = reachable(good, short)
    assert told.verdict == verdict
    assert any("may be out of reach" in one for one in told.warnings) == (verdict != "good")
    assert short.complete
    assert not known(mean_weight=Estimate(0.5, std_error=0.01), missed=HALF).scant  # the edge has said so


def test_the_shares_are_those_of_either_side():
    assert known(missed=HALF).shares == (0.48, 0.0)
    assert known(made=HALF).shares == (0.0, 0.48)


def test_an_average_is_refused_or_bounded():
    f = torch.linspace(0, 1, 50, dtype=torch.float64)
    log_w = torch.zeros(50, dtype=torch.float64)
    free = expectation(f, log_w)
    assert expectation(f, log_w, missed=Estimate(0.0, 0.0)) == free
    refused = expectation(f, log_w, missed=HALF)
    assert not refused.known
    assert "does not reach about 48 % of the data" in refused.reason
    found = expectation(f, log_w, missed=HALF, bounds=(0, 2))
    assert found.value == pytest.approx(0.52 * free.value + 0.48)
    # the ends: 0.51 of the data at the least or at the largest value that f can have
    assert found.low == pytest.approx(0.49 * free.low)
    assert found.high == pytest.approx(0.49 * free.high + 0.51 * 2)
    with pytest.raises(ValueError, match="must be such that f lies within them"):
        expectation(f, log_w, missed=HALF, bounds=(0, 0.5))
    both = expectation(torch.stack([f, -f], 1), log_w, missed=HALF, bounds=(-1, 1))
    assert both.low.shape == both.high.shape == (2,)
    assert str(both).startswith("(")


def test_weights_of_q_and_few_rows():
    """Rows of weight zero are no rows; a handful of rows is no reason to fail."""
    g = torch.Generator().manual_seed(0)
    p, q = torch.rand(800, 1, generator=g).double(), torch.rand(1600, 1, generator=g).double()
    weights = (q[:, 0] < 0.5).double()
    log_p, log_q = (torch.where(x[:, 0] < 0.5, -0.7, 5.0).double() for x in (p, q))
    found = support.reach(p, q, log_p, log_q, q_weights=weights)
    assert found.missed.low < 0.5 < found.missed.high
    assert found.mean_weight.low <= 0.5 <= found.mean_weight.high
    zeros = torch.zeros(6, dtype=torch.float64)
    assert reach(normal(6, 2, g), normal(6, 2, g), zeros, zeros).complete


def test_weights_of_p():
    """Draws whose weights leave no mass where q has nothing miss nothing; their effective number is what counts."""
    g = torch.Generator().manual_seed(0)
    p, q = torch.rand(3000, 2, generator=g).double(), torch.rand(2000, 2, generator=g).double()
    p[:, 0] *= 2
    log_p, log_q = (torch.where(x[:, 0] < 1, 0.0, 6.0).double() for x in (p, q))
    outside = p[:, 0] >= 1
    even = reach(p, q, log_p - 0.7, log_q - 0.7)
    assert even.missed.low < 0.5 < even.missed.high
    tilted = reach(p, q, log_p, log_q, p_weights=torch.where(outside, 1e-6, 1.0).double())
    assert tilted.complete
    assert tilted.far_p < 0.01 < 0.05 < even.far_p
    assert tilted.mean_inverse.ess == pytest.approx(int((~outside).sum()), rel=1e-3)
    fifth = reach(p, q, log_p - 0.2, log_q - 0.2, p_weights=torch.where(outside, 0.25, 1.0).double())
    assert fifth.missed.low < 0.2 < fifth.missed.high < 0.4
    assert bool((p[fifth.outside_p, 0] > 0.9).all())
