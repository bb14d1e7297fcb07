"""Every stored number says what it gives away, and the figures of attacks are those that were measured."""

import json

import pytest
import torch
from benchmarks.privacy import __main__ as benchmark

from vestige.cli import main
from vestige.vestiges import Vestige, keep
from vestige.vestiges.gives_away import MEASURED, NOTHING, NOTICE, figures, gives_away, kind_of, measured


@pytest.fixture(scope="module")
def kept():
    return keep(torch.randn(120, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64), density="mixture")


def test_the_figures_of_the_package_are_the_stored_results():
    assert MEASURED.read_text() == benchmark.document()
    assert figures()
    for sizes in figures().values():
        for attacks in sizes.values():
            assert set(attacks) <= set(benchmark.ATTACKS)
            assert all(0 <= low <= value <= high <= 1 for value, low, high, _ in attacks.values())


def test_every_array_has_its_words_and_those_of_averages_are_not_nothing(kept):
    told = kept.kept().set_index("name")["gives away"]
    assert told.str.len().gt(10).all()
    assert (told[told.index.str.startswith(("sketch.moments", "sketch.test.moments", "reference"))] != NOTHING).all()
    assert gives_away("sketch.test.null.quantiles") != gives_away("sketch.test.moments.total")


def test_attacks_are_those_of_the_nearest_size_and_of_the_kind(kept):
    found = measured(kept.frame, 120)
    assert kind_of(kept.frame) == "array"
    sizes = figures()["array"]
    assert set(found.n) == {min(map(int, sizes))}
    assert measured(kept.frame, 10**7).n.iloc[0] == max(map(int, sizes))
    value = sizes[str(found.n.iloc[0])]["moments"][0]
    assert float(found.set_index("attack").auc["moments"]) == value


def test_the_file_says_it_and_show_prints_it(kept, tmp_path, capsys):
    path = kept.save(tmp_path / "a.vestige")
    assert NOTICE == "Rows deleted is not anonymous. Below 1000 rows membership can often be guessed."
    assert NOTICE.encode() in path.read_bytes()
    assert Vestige.load(path).notice == NOTICE
    assert main(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.rstrip().endswith(NOTICE)
    assert "gives away" in shown
    assert "attacks on public data of this kind" in shown
    assert main(["show", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["notice"] == NOTICE
    assert {one["attack"] for one in told["attacks"]} >= {"density", "moments"}
    assert all(one["gives away"] for one in told["stored"])
