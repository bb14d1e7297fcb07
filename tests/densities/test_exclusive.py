"""Columns that are one category spread out come back as one."""

import torch

from vestige import densities
from vestige.densities.exclusive import ExclusiveColumns


def rows(n: int = 2000) -> torch.Tensor:
    """A number, a category of five spread over columns 1 to 5 of which the last is rare, and two free indicators."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, generator=g, dtype=torch.float64)
    code = ((x + 0.5 * torch.randn(n, generator=g, dtype=torch.float64)).clamp(-1.9, 1.9) + 2).long()
    code[:20] = 4
    free = (torch.rand(n, 2, generator=g) < 0.4).double()
    return torch.cat([x[:, None], torch.nn.functional.one_hot(code, 5).double(), free], 1)


def test_the_group_is_found_and_joining_is_undone():
    x = rows()
    found = ExclusiveColumns.of(x, ("number",) * 8)
    assert [set(group) for group in found.groups] == [{1, 2, 3, 4, 5}]
    assert found.rare == (5,)
    joined = found.joined(x)
    assert joined.shape == (len(x), 4)
    back = found.spread(joined)
    assert torch.equal(back[20:], x[20:])
    assert bool((back[:, 1:6].sum(1) == 1).all())  # the rare ones count as the most frequent
    assert bool((back[:, 5] == 0).all())


def test_indicators_that_meet_are_no_group():
    x = (torch.rand(500, 6, generator=torch.Generator().manual_seed(0)) < 0.3).double()
    assert ExclusiveColumns.of(x, ("number",) * 6).groups == ()


def test_draws_have_one_category_each_and_it_depends_on_the_number():
    x = rows()
    for name in ("trees", "copula"):
        density = densities.build(name).fit(x)
        drawn = density.draw(1000, seed=1)
        assert bool((drawn[:, 1:6].sum(1) == 1).all()), name
        low, high = drawn[drawn[:, 0] < -1], drawn[drawn[:, 0] > 1]
        if name == "trees":
            assert float(low[:, 1].mean()) > 0.4 > 0.1 > float(high[:, 1].mean())
