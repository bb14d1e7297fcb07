"""Every `vestige ...` line of the README and of the pages in docs/ is one that the shell's parser takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from vestige import cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ALONE = {"--help", "-h", "--version", "-V"}


def commands(text: str) -> list[str]:
    """Lines of shell blocks, and code within sentences and tables, that begin with `vestige` and a verb."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.S | re.M)  # in pairs, whatever they hold
    blocks = [block for language, block in fenced if language in ("", "console", "sh", "bash", "yaml")]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    lines = [re.sub(r"^(\$ |(- )?run: )", "", line.strip()) for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`]+)`", rest)
    lines = [line.removeprefix(".venv/bin/") for line in lines]
    return [" ".join(line.split()) for line in lines if re.match(r"vestige (?!VERB)\S", line)]


def parse(command: str) -> object | None:
    """What would run, or None where help is asked for; raises unless verb, options and number of words are right."""
    words = shlex.split(command, comments=True)[1:]
    if words[0] in ALONE:
        return None
    assert words[0] in cli.VERBS, f"'{words[0]}' is no verb"
    try:
        return cli._parse(words[0], words[1:])
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise AssertionError(f"the parser does not take '{command}'") from stop
        return None


def told(made: object) -> set[str]:
    """Every value that the parser put into a field, as a word; a verb within a verb by its name."""

    def flat(value: object) -> Iterator[str]:
        inner = [getattr(value, field) for field in getattr(value, "__dataclass_fields__", ())]
        if isinstance(value, tuple | list) or inner:
            yield type(value).__name__.lower().removesuffix("monitor")  # StartMonitor is `monitor start`
            for each in inner or value:
                yield from flat(each)
        else:
            yield f"{value:g}" if isinstance(value, float) else str(value)

    return set(flat(made))


COMMANDS = sorted({command for page in PAGES for command in commands(page.read_text())})


def in_passing(command: str) -> bool:
    """A verb that a sentence names without what it asks for, such as `vestige weigh` or `vestige monitor step`."""
    words = shlex.split(command, comments=True)
    return len(words) <= (3 if words[1] == "monitor" else 2)


WHOLE = [command for command in COMMANDS if not in_passing(command)]


def test_every_verb_is_shown_somewhere():
    assert {shlex.split(command, comments=True)[1] for command in COMMANDS} >= set(cli.VERBS)


@pytest.mark.parametrize("command", WHOLE)
def test_a_command_parses(command, capsys):
    made, words = parse(command), shlex.split(command, comments=True)
    if made is None:
        assert ALONE & set(words)
        return
    assert type(made) is cli.VERBS[words[1]]
    assert {word for word in words[2:] if not word.startswith("-")} <= told(made)


@pytest.mark.parametrize(
    "wrong", ["vestige wiegh a.csv b.csv", "vestige run cdre-fig2a --sedes 3", "vestige compare only-one.csv"]
)
def test_a_wrong_command_is_caught(wrong, capsys):
    with pytest.raises(AssertionError):
        parse(wrong)


def test_blocks_sentences_and_prompts_are_read():
    text = (
        "see `vestige list`.\n\n```console\n$ vestige audit x.json   # a Record\n```\n\n```python\nvestige = 1\n```\n"
        "\n```yaml\njobs:\n  - run: vestige data\n```\n"
    )
    assert commands(text) == ["vestige audit x.json # a Record", "vestige data", "vestige list"]
