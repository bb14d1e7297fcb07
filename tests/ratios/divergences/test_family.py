"""The f table against brute force: conjugates by a supremum over a grid, slopes by differences, forms by each other."""

import math

import numpy as np
import pytest
import torch

from vestige.core.errors import InputError, UnknownName
from vestige.ratios.divergences import FAMILY, alpha, get
from vestige.ratios.divergences.family import log_wright_omega

NAMES = [*FAMILY, "alpha(0.3)", "alpha(1.5)", "alpha(3)", "alpha(-0.5)"]
LOG_R = torch.linspace(-6, 6, 241, dtype=torch.float64)

# The generators as they are written in books, of r itself and up to a term c (r - 1).
BOOK = {
    "kl": lambda r: r * np.log(r),
    "reverse_kl": lambda r: -np.log(r),
    "js": lambda r: 0.5 * (r * np.log(r) - (r + 1) * np.log((r + 1) / 2)),
    "hellinger2": lambda r: 1 - np.sqrt(r),
    "pearson_chi2": lambda r: r**2 - 1,
    "neyman_chi2": lambda r: 1 / r - 1,
    "total_variation": lambda r: np.maximum(r - 1, 0),
    "jeffreys": lambda r: (r - 1) * np.log(r),
    "alpha(0.3)": lambda r: (r**0.3 - 1) / (0.3 * -0.7),
    "alpha(1.5)": lambda r: (r**1.5 - 1) / 0.75,
    "alpha(3)": lambda r: (r**3 - 1) / 6,
    "alpha(-0.5)": lambda r: (r**-0.5 - 1) / 0.75,
}


@pytest.mark.parametrize("name", NAMES)
def test_generator_is_that_of_the_books_up_to_a_linear_term(name):
    r = LOG_R.exp().numpy()
    for ours in (get(name).f, get(name).light):
        if ours is not None:
            gap = ours(LOG_R).numpy() - BOOK[name](r)
            c = gap[-1] / (r[-1] - 1)
            np.testing.assert_allclose(gap, c * (r - 1), atol=1e-9 * (1 + abs(c)) * r.max())
    assert float(get(name).f(torch.zeros(1, dtype=torch.float64))) == 0


@pytest.mark.parametrize("name", NAMES)
def test_light_form_grows_slower_than_r_and_f_is_convex(name):
    div = get(name)
    r = torch.linspace(0.01, 20, 4000, dtype=torch.float64)
    f = div.f(r.log())
    assert float((f[2:] - 2 * f[1:-1] + f[:-2]).min()) > -1e-9
    far = torch.tensor([60.0, 600.0], dtype=torch.float64)
    if div.light is None:
        assert float(div.f(far)[0].log() - far[0]) > math.log(10)
    else:
        # r^a with a < 1 falls below r by e^-(1-a) 60
        assert float(div.light(far)[0].abs().log() - far[0]) < -15
        assert bool(torch.isfinite(div.light(far)).all())


@pytest.mark.parametrize("name", NAMES)
def test_two_sided_form_is_f_when_put_together(name):
    div = get(name)
    a, b = (torch.zeros_like(LOG_R) if m is None else m(LOG_R) for m in div.two_sided)
    gap = LOG_R.exp() * a + b - div.f(LOG_R)  # E_q[r a + b] must be E_q[f]: equal up to c (r - 1)
    if div.two_sided[0] is div.two_sided[1] and div.two_sided[0] is not None:
        assert float(a.abs().max()) <= div.upper  # bounded
    c = gap[-1] / LOG_R[-1].expm1()
    torch.testing.assert_close(gap, c * LOG_R.expm1(), atol=1e-8 * float(1 + c.abs()) * 400, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_slope_is_the_derivative(name):
    div = get(name)
    x = torch.linspace(-3, 3, 60, dtype=torch.float64)  # 0 is not among them: the kink of total_variation
    r, h = x.exp(), 1e-6
    numeric = (div.f((r + h).log()) - div.f((r - h).log())) / (2 * h)
    torch.testing.assert_close(div.slope(x), numeric, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_conjugate_is_the_supremum(name):
    div = get(name)
    log_r = torch.cat([torch.linspace(-40, 12, 400_001), torch.zeros(1)]).double()  # with the kink at r = 1
    r, f = log_r.exp(), div.f(log_r)
    slopes = div.slope(torch.linspace(-4, 4, 17, dtype=torch.float64))
    below = slopes.min() - torch.tensor([0.5, 2.0, 7.0], dtype=torch.float64)  # where the supremum may be at r = 0
    for t in torch.cat([slopes, below]):
        brute = float((r * t - f).max())
        assert float(div.conjugate(t[None])) == pytest.approx(brute, rel=1e-6, abs=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_conjugate_is_infinite_beyond_the_range_of_slopes(name):
    div = get(name)
    if math.isfinite(div.slope_below):
        assert float(div.conjugate(torch.tensor([div.slope_below + 1e-6], dtype=torch.float64))) == math.inf
    inside = div.activation(torch.linspace(-3, 3, 50, dtype=torch.float64))
    assert bool((inside < div.slope_below).all())
    assert bool(torch.isfinite(div.conjugate(inside)).all())


@pytest.mark.parametrize("name", NAMES)
def test_reverse_exchanges_the_laws(name):
    div = get(name)
    back = get(div.reverse)
    torch.testing.assert_close(back.f(-LOG_R), div.f(LOG_R) / LOG_R.exp(), rtol=1e-9, atol=1e-9)
    assert get(back.reverse).name == div.name


def test_alpha_has_the_right_limits_and_relatives():
    assert alpha(1.0) is FAMILY["kl"]
    assert alpha(0.0) is FAMILY["reverse_kl"]
    r_minus_1 = LOG_R.expm1()
    near = 1e-6
    torch.testing.assert_close(alpha(1 + near).f(LOG_R), FAMILY["kl"].f(LOG_R) - r_minus_1, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(alpha(near).f(LOG_R), FAMILY["reverse_kl"].f(LOG_R) + r_minus_1, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(2 * alpha(2.0).f(LOG_R), FAMILY["pearson_chi2"].f(LOG_R))
    torch.testing.assert_close(alpha(0.5).f(LOG_R), 4 * FAMILY["hellinger2"].f(LOG_R))
    torch.testing.assert_close(2 * alpha(-1.0).f(LOG_R), FAMILY["neyman_chi2"].f(LOG_R))


def test_where_p_vanishes_the_terms_are_right():
    gone = torch.tensor([-math.inf], dtype=torch.float64)
    expected = {"kl": 0.0, "reverse_kl": math.inf, "js": math.log(2) / 2, "hellinger2": 0.5, "pearson_chi2": 1.0}
    expected |= {"neyman_chi2": math.inf, "total_variation": 0.5, "jeffreys": math.inf, "alpha(0.3)": 1 / 0.3}
    for name, value in expected.items():
        assert float(get(name).f(gone)) == pytest.approx(value)


def test_wright_omega_solves_its_equation_and_has_its_gradient():
    z = torch.tensor([-800.0, -30.0, -1.0, 0.0, 1.0, 5.0, 1e6], dtype=torch.float64, requires_grad=True)
    y = log_wright_omega(z)
    torch.testing.assert_close(y + y.exp(), z, rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(y.sum(), z)
    torch.testing.assert_close(slope, 1 / (1 + y.detach().exp()))


def test_names_are_parsed_and_unknown_ones_refused():
    assert get("alpha( -1.5e0 )").name == "alpha(-1.5)"
    with pytest.raises(UnknownName, match="Did you mean 'hellinger2'"):
        get("hellinger")
    with pytest.raises(UnknownName, match="Got 'alpha\\(x\\)'"):
        get("alpha(x)")
    with pytest.raises(InputError, match="'a' of alpha"):
        alpha(math.inf)


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("kl", ("p",)),
        ("reverse_kl", ("q",)),
        ("pearson_chi2", ("p",)),
        ("neyman_chi2", ("q",)),
        ("jeffreys", ("p", "q")),
        ("alpha(2)", ("p",)),
        ("alpha(-0.5)", ("q",)),
        *((name, ()) for name in ("js", "hellinger2", "total_variation", "alpha(0.3)")),
    ],
)
def test_what_must_be_in_reach(name, needs):
    assert get(name).needs == needs
