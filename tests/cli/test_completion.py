"""Completion in the shells themselves: the script is sourced, and a verb and an option are completed."""

import dataclasses
import shutil
import subprocess

import pytest

from vestige.cli import VERBS, main
from vestige.cli.completion import options, script, sub_verbs

BASH_ASKS = """
{script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _vestige; echo "${{COMPREPLY[@]}}"
"""
ZSH_ASKS = """
autoload -Uz compinit; compinit -D
{script}
compadd() {{ shift; print -l -- $@ }}
_files() {{ }}
words=({words}); CURRENT=${{#words}}; _vestige
"""


def asked(shell, words, tmp_path):
    form = {"bash": BASH_ASKS, "zsh": ZSH_ASKS}[shell]
    file = tmp_path / "ask"
    file.write_text(form.format(script=script(shell, VERBS), words=words))
    flags = ["--norc", "--noprofile"] if shell == "bash" else ["-f"]
    done = subprocess.run([shell, *flags, str(file)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture(params=["bash", "zsh"])
def shell(request):
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} here: apt-get install {request.param}")
    return request.param


def test_verbs_and_options_are_completed(shell, tmp_path):
    verbs = asked(shell, "vestige co" if shell == "bash" else "vestige ''", tmp_path)
    assert {"compare", "completion"} <= set(verbs)
    assert "keep" not in verbs if shell == "bash" else set(verbs) == set(VERBS)
    assert "--html" in asked(shell, "vestige compare --" if shell == "bash" else "vestige compare ''", tmp_path)


def test_verbs_under_a_verb_are_completed(shell, tmp_path):
    assert "step" in asked(shell, "vestige monitor st" if shell == "bash" else "vestige monitor ''", tmp_path)
    found = asked(shell, "vestige monitor step --" if shell == "bash" else "vestige monitor step ''", tmp_path)
    assert "--seed" in found


def test_every_option_of_a_verb_is_offered():
    assert set(sub_verbs(VERBS["monitor"])) >= {"start", "step", "show", "report"}
    for name in ("compare", "weigh", "keep"):
        named = {one.name.replace("_", "-") for one in dataclasses.fields(VERBS[name])}
        assert {word.removeprefix("--") for word in options(VERBS[name])} < named


def test_the_verb_prints_the_script(capsys):
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == script("bash", VERBS)
