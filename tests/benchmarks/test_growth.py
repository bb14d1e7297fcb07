"""Exponents of known powers, points that are not run twice, and a page that holds stored numbers alone."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.growth import JOBS, KEY, Job, Work, measure, missing, plan, run, slope, width

from benchmarks import page, stored


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_known_exponents_come_out(exponent):
    sizes = [100, 200, 400, 800]
    found = slope(sizes, [3e-4 * n**exponent for n in sizes])
    assert found.exponent == pytest.approx(exponent, abs=1e-9)
    assert found.last == pytest.approx(exponent, abs=1e-9)
    assert found.error == pytest.approx(0.0, abs=1e-7)


def test_a_slope_is_that_of_least_squares_with_its_standard_error():
    # by hand: x = 0, 1, 2, 3 (log2), y = 0, 1, 1, 2: b = 3 / 5 x 1 = 0.6; what is left is 0.2, over 2, over 5, rooted
    found = slope([1, 2, 4, 8], [1, 2, 2, 4])
    assert found.exponent == pytest.approx(0.6)
    assert found.error == pytest.approx(math.sqrt(0.2 / 2 / 5))
    assert found.last == pytest.approx(1.0)


@pytest.mark.parametrize("parameters", [60_000, 500_000])
def test_widths_have_the_parameters_that_are_asked_for(parameters):
    w = width(parameters)
    assert 784 * w + w + w * w + w + 10 * w + 10 == pytest.approx(parameters, rel=0.01)


TINY = {"FID": {"n": 40, "d": 4}, "KID": {"n": 40, "d": 4}, "EWC step": {"parameters": 3000, "tasks": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_a_point_has_time_memory_and_what_stands_beside_it(name):
    base = TINY[name]
    axis = next(iter(base))
    job = replace(JOBS[name], base=base, axes={axis: (base[axis], 2 * base[axis])})
    first, second = measure(job, axis, [2 * base[axis], base[axis]])
    assert (first["size"], second["size"]) == (base[axis], 2 * base[axis]), "the smallest first"
    assert second["sizes"] == base | {axis: 2 * base[axis]}
    for point in (first, second):
        assert point["seconds"] > 0
        assert point["beside"] > 0
        assert point["peak"] > point["added"] >= 0


@pytest.mark.slow
def test_memory_and_time_are_those_of_the_call():
    held = []

    def work(sizes):
        return Work(lambda: held.append(bytearray(sizes["n"] * 1_000_000)) or held.clear())

    small, large = measure(Job(work, {"n": 1}, {"n": (1, 64)}, "kernel", "bytes"), "n", (1, 64))
    assert large["added"] > 50e6 > small["added"]
    assert large["seconds"] > small["seconds"]
    assert large["beside"] is None


def point(size, seconds=None):
    return {
        "size": size, "sizes": {"n": size}, "seconds": 1e-4 * size**2 if seconds is None else seconds, "repeats": 3,
        "beside": 2e-4 * size**2, "peak": 300_000_000, "added": 5000 * size,
    }  # fmt: skip


def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    jobs = {"FID": replace(JOBS["FID"], axes={"n": (1, 2, 4, 8)}, seconds=30)}
    file = tmp_path / "growth.jsonl"
    asked = []

    def stopped(name, axis, sizes):
        for size in sizes:
            asked.append(size)
            if size == 4 and len(asked) < 4:
                raise KeyboardInterrupt
            yield point(size)

    assert plan(jobs, file).endswith("about 2.0 CPU minutes in all")
    with pytest.raises(KeyboardInterrupt):
        run(jobs, file, stopped)
    assert [line["size"] for line in stored.read(file)] == [1, 2]
    assert missing(jobs, file) == [("FID", "n", [4, 8])]
    assert plan(jobs, file).endswith("about 1.0 CPU minutes in all")
    assert run(jobs, file, stopped) == 2
    assert asked == [1, 2, 4, 4, 8]
    (line, *_) = stored.read(file)
    assert {"versions", "machine", "date", "command"} <= set(line)
    assert {"python", "torch", "vestige"} <= set(line["versions"])


def test_a_stored_line_takes_the_place_of_its_like(tmp_path):
    file = tmp_path / "x.jsonl"
    stored.add(file, [{"job": "a", "axis": "n", "size": 1, "x": 1}, {"job": "a", "axis": "n", "size": 2, "x": 2}], KEY)
    stored.add(file, [{"job": "a", "axis": "n", "size": 1, "x": 3}], KEY)
    assert [(line["size"], line["x"]) for line in stored.read(file)] == [(2, 2), (1, 3)]


def facts(**more):
    made = {"versions": {"python": "3", "densratio": "0.4.0"}, "machine": "2 cores, x86-64", "date": "2026-01-01"}
    return made | {"command": "python -m benchmarks x"} | more


def test_the_page_holds_what_is_stored_and_says_what_is_not():
    growth = [facts(job="FID", axis="n", kind="kernel") | point(n) for n in (1000, 2000, 4000, 8000)]
    row = {"name": "ulsif", "ours": 0.5, "peer_name": "densratio", "peer": 20.0, "floor": 0.25, "at_most": 1 / 30}
    ratios = [facts(benchmark="ratios", **row, note="n", ratio=0.025, over_floor=2.0, met=True)]
    found = page.documents(ratios, growth, ["`python -m benchmarks vcl --store`"])
    text = found["BENCHMARKS.md"].decode()
    assert text.splitlines()[2] == (
        "**1 of 1 targets against peers are met; the steepest growth of a main job is that of FID with rows, to the "
        "power 2.00 (0.00).**"
    )
    assert "| ulsif | 0.5 | densratio 0.4.0 | 20 | 0.025 (met) | 0.0333 | 0.25 | 2 | n |" in text
    assert (
        "| FID | kernel | rows | 1000, 2000, 4000, 8000 | 100, 400, 1.6e+03, 6.4e+03 | 2.00 (0.00) | 2.00 | 0.5 |"
        in text
    )
    assert "Made by `python -m benchmarks x` on 2026-01-01, 2 cores, x86-64: densratio 0.4.0, python 3." in text
    assert "- `python -m benchmarks vcl --store`" in text
    picture = found["docs/benchmarks/n.svg"].decode()
    assert "FID, n^2.00" in picture
    assert "docs/benchmarks/n.svg" in text
    assert "docs/benchmarks/d.svg" not in found


def test_what_the_repository_shows_is_what_it_stores():
    ratios, growth = stored.read(page.RATIOS), stored.read(page.GROWTH)
    found = page.text(ratios, growth, page.slopes(growth), page.not_run(ratios))
    assert (Path(__file__).parents[2] / "BENCHMARKS.md").read_text() == found, "python -m benchmarks page writes it"
