"""The frame: exit codes, hints, help, tracebacks only on request, a closed pipe, Ctrl-C."""

import functools
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

import vestige
from vestige import cli
from vestige.cli import main
from vestige.core.errors import DataUnavailable, InputError, UnknownName, VestigeWarning

VESTIGE = [sys.executable, "-m", "vestige"]


def planted(error):
    """A verb that raises `error`."""

    @dataclass(frozen=True)
    class Planted:
        """Fails."""

        def run(self):
            raise error

    return Planted


@pytest.fixture
def plant(monkeypatch):
    return lambda error: monkeypatch.setitem(cli.VERBS, "planted", planted(error))


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_verb(argv, capsys):
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert all(f"  {verb} " in shown for verb in cli.VERBS)
    assert max(map(len, shown.splitlines())) <= 120


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_has_help_and_says_what_it_is(verb, capsys):
    assert main([verb, "--help"]) == 0
    assert f"usage: vestige {verb}" in capsys.readouterr().out
    assert main(["help", verb]) == 0
    assert f"usage: vestige {verb}" in capsys.readouterr().out
    assert cli.VERBS[verb].__doc__.splitlines()[0].endswith(".")


@pytest.mark.parametrize("argv", [["--version"], ["-V"]])
def test_the_version(argv, capsys):
    assert main(argv) == 0
    assert capsys.readouterr().out == f"vestige {vestige.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["matrx"], "Did you mean 'matrix'?"),
        (["lsit"], "Did you mean 'list'?"),
        (["zzz"], "must be one of"),
        (["--json"], "The first word after 'vestige'"),
        (["matrix"], "at least one"),
        (["matrix", "R.csv", "--refernce", "x"], "--reference"),
        (["matrix", "R.csv", "--better", "sideways"], "sideways"),
        (["list", "method"], "Did you mean 'methods'?"),
        (["data", "fetsh"], "Did you mean 'fetch'?"),
    ],
)
def test_misuse_is_2_with_the_nearest_name_and_nothing_on_stdout(argv, complaint, capsys):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert complaint in err
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (InputError("The 'x' of Y must be Z. Got v instead."), 2, "error: The 'x' of Y must be Z. Got v instead.\n"),
        (UnknownName("No such name."), 2, "error: No such name.\n"),
        (DataUnavailable("It is nowhere."), 1, "error: It is nowhere.\n"),
        (PermissionError(13, "Permission denied", "/locked"), 1, "error: /locked: Permission denied.\n"),
        (OSError(28, "No space left"), 1, "error: The answer or a file cannot be written: No space left.\n"),
        (MemoryError(), 1, "error: The memory of this machine, or what is allowed of it, does not suffice"),
        (
            RuntimeError("[enforce fail] can't allocate memory: 9 bytes"),
            1,
            "error: The memory of this machine, or what",
        ),
        (ZeroDivisionError("by zero"), 1, "error: ZeroDivisionError: by zero (this should not happen; --debug"),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(error, code, sentence, plant, capsys):
    plant(error)
    assert main(["planted"]) == code
    out, err = capsys.readouterr()
    assert err.startswith(sentence)
    assert len(err.splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize("argv", [["planted", "--debug"], ["--debug", "planted"]])
def test_debug_anywhere_shows_the_traceback(argv, plant, capsys):
    plant(InputError("The reason."))
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("error: The reason.\n")


def test_control_characters_in_an_error_are_shown_and_not_obeyed(plant, capsys):
    plant(InputError("evil\x1b]0;title\x07 [red]name[/red] \udcff"))
    assert main(["planted"]) == 2
    assert capsys.readouterr().err == "error: evil\\x1b]0;title\\x07 [red]name[/red] \\udcff\n"


def test_a_sentence_has_an_end(plant, capsys):
    plant(InputError("a" * 100_000 + " end"))
    assert main(["planted"]) == 2
    said = capsys.readouterr().err
    assert len(said) < 1600
    assert said.endswith(" end\n")
    assert main(["x" * 100_000]) == 2
    assert len(capsys.readouterr().err) < 300


def test_an_interrupt_is_130(plant, capsys):
    plant(KeyboardInterrupt())
    assert main(["planted"]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_warnings_of_ours_are_one_line_on_stderr(monkeypatch, capsys):
    @dataclass(frozen=True)
    class Shaky:
        """Warns."""

        def run(self):
            warnings.warn("It stands on sand.", VestigeWarning, stacklevel=1)

    monkeypatch.setitem(cli.VERBS, "shaky", Shaky)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["shaky"]) == 0
    assert capsys.readouterr() == ("", "warning: It stands on sand.\n")


# What only a process of its own can show.


def test_help_loads_no_heavy_package():
    heavy = "{'torch', 'sklearn', 'pandas', 'scipy', 'numpy', 'matplotlib'}"
    script = f"import sys; from vestige.cli import main; main(['--help']); print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


# A verb whose answer waits in the buffer until the end, as JSON does.
BUFFERED = """
import sys
from dataclasses import dataclass
from pathlib import Path
from vestige.cli import VERBS, main, output

@dataclass
class Answer:
    def run(self) -> None:
        output.document({"x": 1})

VERBS["answer"] = Answer
sys.exit(main(["answer"]))
"""


@pytest.mark.parametrize(
    "argv", [[*VESTIGE, "--help"], [*VESTIGE, "matrix", "--help"], [sys.executable, "-c", BUFFERED]]
)
def test_a_reader_that_leaves_early_is_met_with_silence(argv):
    read_end, write_end = os.pipe()
    os.close(read_end)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(argv, stdout=write_end, stderr=subprocess.PIPE, env=buffered, text=True, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_ctrl_c_ends_a_waiting_command_with_130():
    argv = [*VESTIGE, "matrix", "-"]
    # A shell that runs this in the background has it ignore the signal, and a child inherits that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    read_end, write_end = os.pipe()
    pipes = {"stdin": read_end, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    waiting = subprocess.Popen(argv, preexec_fn=heed, **pipes)
    os.close(read_end)
    os.write(write_end, b"0" * 2**18)  # more than a pipe holds: returns once the command reads
    time.sleep(0.5)  # until it has read this and waits for more: between two reads Python hears no signal
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=60)
    os.close(write_end)
    assert (waiting.returncode, out, err) == (130, "", "Interrupted.\n")


@pytest.mark.slow
def test_the_module_is_the_command():
    done = subprocess.run([*VESTIGE, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"vestige {vestige.__version__}\n"
    misused = subprocess.run([*VESTIGE, "nonsense"], capture_output=True, text=True, check=False)
    assert misused.returncode == 2
    assert "Traceback" not in misused.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_an_answer_that_does_not_fit_is_a_sentence_and_1(tmp_path):
    (tmp_path / "R.csv").write_text("0.5,\n0.4,0.6\n")
    for words in (["--version"], ["matrix", str(tmp_path / "R.csv")]):
        with open("/dev/full", "w") as full:
            argv = [sys.executable, "-m", "vestige", *words]
            done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "cannot be written" in done.stderr
        assert "No space left on device" in done.stderr


@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("3", "3")])
def test_a_command_takes_one_core_unless_told_otherwise(before, after, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # so that it is put back
    monkeypatch.delenv("OMP_NUM_THREADS")
    if before is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", before)
    monkeypatch.setattr(sys, "argv", ["vestige", "--version"])
    assert main() == 0
    assert os.environ["OMP_NUM_THREADS"] == after


def test_a_call_from_python_leaves_the_environment_alone(monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert main(["--version"]) == 0
    assert "OMP_NUM_THREADS" not in os.environ
