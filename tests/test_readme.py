"""Every Python block of the README and of the pages in docs/ runs as it stands, in a folder of its own.

Pages that show pictures are run by `make docs`, which draws them by the same function: here their blocks are slow.
"""

import re

import examples
import pytest

TEXTS = {page.name: page.read_text() for page in examples.PAGES}
BLOCKS = {f"{name}-{i}": block for name, text in TEXTS.items() for i, block in enumerate(examples.blocks(text))}
# Where the comment of a block says that it prints one of these, it does.
PRINTED = ("cannot reach part of the data", "The model does not reach about")
JOBS = ("vestige", "watch_a_generator", "compare_learners", "weigh_samples", "evaluate_a_policy", "run_a_paper")


def drawn_by_make_docs(name):
    return bool(examples.shown(TEXTS[name.rpartition("-")[0]]))


def test_there_are_blocks_to_run():
    assert sum(name.startswith("README") for name in BLOCKS) >= 2
    assert all(any(f"# {words}" in block for block in BLOCKS.values()) for words in PRINTED)
    assert {f"{page}.md-0" for page in (*JOBS, "index", "add_a_method")} <= set(BLOCKS)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_shows_its_picture_and_its_example_draws_it(job):
    text = TEXTS[f"{job}.md"]
    drawn = re.findall(r'"(\w+\.svg)"', "".join(examples.blocks(text)))
    assert examples.shown(text)
    assert sorted(examples.shown(text)) == sorted(drawn)


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (examples.DOCS.parent / "mkdocs.yml").read_text()))
    made = {"REPRODUCTIONS.md", "BENCHMARKS.md"}  # which the site takes from beside the documentation
    papers = {f"reproductions/{page.name}" for page in (examples.DOCS / "reproductions").glob("*.md")}
    assert listed - made == set(TEXTS) - {"README.md"} | {name.lower() for name in made} | papers


def marks(name):
    """What `make docs` draws is slow here; networks need their steps only where a number is promised."""
    full = [pytest.mark.full_training] if any(f"# {words}" in BLOCKS[name] for words in PRINTED) else []
    return [*full, pytest.mark.slow] if drawn_by_make_docs(name) else full


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in BLOCKS])
def test_a_block_runs(name, tmp_path):
    printed = examples.run(BLOCKS[name], tmp_path)
    assert printed.strip()
    for words in PRINTED:
        assert words in printed or f"# {words}" not in BLOCKS[name]


@pytest.mark.parametrize(
    ("block", "error"),
    [
        ("print(1 / 0)", ZeroDivisionError),
        ("import warnings\nwarnings.warn('old', DeprecationWarning)\nprint(1)", DeprecationWarning),
        ("x = 1", AssertionError),
        ("print(examples)", NameError),
    ],
)
def test_a_block_that_fails_or_warns_or_says_nothing_is_an_error(block, error, tmp_path):
    with pytest.raises(error):
        examples.run(block, tmp_path)
