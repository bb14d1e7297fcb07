"""The shell: `vestige VERB ...`, a verb for each thing somebody wants done.

A verb is one class in this package and one line in `VERBS`: a dataclass whose docstring is its help, whose fields are
its options (the docstring under a field is the option's help), and whose `run(self) -> None` does the work.

    @dataclass(frozen=True)
    class WeighVerb(output.Verb):
        \"\"\"Weights that turn samples of a model into samples of the data.\"\"\"

        real: Positional[Path]
        \"\"\"The real samples.\"\"\"

        def run(self) -> None:
            from vestige import weights  # torch and what needs it: here, never at the top of the file
            ...

`run` ends with `self.answer(...)`, prints through `output` alone and refuses by raising: an InputError is misuse, any
other error a failure.

Exit codes: 0 done; 1 failed; 2 misuse (an unknown verb, option or name, a file that cannot be used); 3 an alarm of a
monitor fires; 4 none does, but one cannot be told, because the number that it watches was refused; 130 interrupted.
A reader that closes the pipe early has what it wanted: 0, in silence. `--debug`, anywhere, shows tracebacks. A command
takes one core, or as many as OMP_NUM_THREADS says.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tyro.conf import Positional

from vestige.cli import output
from vestige.cli.audit import AuditVerb
from vestige.cli.augment import AugmentVerb
from vestige.cli.demo.verb import DemoVerb
from vestige.cli.keep import KeepVerb, MergeVerb, ShowVerb
from vestige.cli.listing import DataVerb, ListVerb
from vestige.cli.matrix import MatrixVerb
from vestige.cli.monitor import MonitorVerb
from vestige.cli.pairs import CompareVerb, WeighVerb
from vestige.cli.policy import PolicyVerb
from vestige.cli.report import ReportVerb
from vestige.cli.run import RunVerb
from vestige.core import InputError, VestigeError, VestigeWarning, __version__
from vestige.core.errors import shortened

OK, FAILED, MISUSE, INTERRUPTED = 0, 1, 2, 130
NO_MEMORY = ("can't allocate memory", "out of memory")  # what torch says of it, of a processor or of a GPU
FULL = (errno.ENOSPC, errno.EDQUOT)  # what a system says of a disk, or of a share of one


@dataclass(frozen=True)
class CompletionVerb(output.Verb):
    """A script for your shell that completes 'vestige <TAB>': source <(vestige completion bash)."""

    shell: Positional[Literal["bash", "zsh"]]
    """The shell that you use."""

    def run(self) -> None:
        """Print the script."""
        from vestige.cli.completion import script

        text = script(self.shell, VERBS)
        self.answer({"shell": self.shell, "script": text}, text.rstrip("\n"))


VERBS: dict[str, Callable[..., Any]] = {
    "demo": DemoVerb,
    "keep": KeepVerb,
    "show": ShowVerb,
    "merge": MergeVerb,
    "compare": CompareVerb,
    "weigh": WeighVerb,
    "augment": AugmentVerb,
    "matrix": MatrixVerb,
    "audit": AuditVerb,
    "monitor": MonitorVerb,
    "policy": PolicyVerb,
    "run": RunVerb,
    "report": ReportVerb,
    "list": ListVerb,
    "data": DataVerb,
    "completion": CompletionVerb,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    if argv is None:  # a process of our own
        # Small products on several threads wait for each other: on busy cores minutes for seconds. torch is not loaded
        # yet, and a user's own choice stands.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a letter gets a substitute, not a traceback
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = OK
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                if (verb := _verb(args)) is not None:
                    verb.run()
        except BrokenPipeError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            code = _code(error, debug)
        sys.stdout.flush()  # so that a closed pipe is met here and not while the interpreter shuts down
    except OSError as error:
        # What is still buffered has nowhere to go; pointing stdout at nothing keeps the shutdown silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return OK
        output.error(f"The answer cannot be written to standard output: {error.strerror}.")
        return FAILED
    return code


def _code(error: BaseException, debug: bool) -> int:
    """The exit code of what was raised, and the sentence that goes with it."""
    if isinstance(error, SystemExit):  # the parser has printed its help or its complaint
        return error.code if isinstance(error.code, int) else OK if error.code is None else FAILED
    if isinstance(error, KeyboardInterrupt):
        output.note("Interrupted.")
        return INTERRUPTED
    if debug:
        traceback.print_exception(error)
    output.error(_sentence(error))
    return MISUSE if isinstance(error, InputError) else FAILED


def _verb(args: list[str]) -> Any:  # noqa: ANN401 - whatever verb the first word names
    """The verb with its options, ready to run; None where help or the version was asked for, and given."""
    if args[:1] == ["help"]:
        args = [*args[1:2], "--help"]
    if not args or args[0] in ("--help", "-h"):
        return _help()
    if args[0] in ("--version", "-V"):
        return output.say(f"vestige {__version__}")
    if args[0] not in VERBS:
        near = difflib.get_close_matches(args[0], VERBS, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        got = shortened(repr(args[0]), 60)
        raise InputError(f"The first word after 'vestige' must be one of {', '.join(VERBS)}. Got {got} instead.{hint}")
    return _parse(args[0], args[1:])


def _parse(name: str, args: list[str]) -> Any:  # noqa: ANN401 - whatever verb `name` is
    import tyro

    markers = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName)
    complaint = io.StringIO()
    try:
        # The parser colours its complaints even where NO_COLOR or a log file forbids it.
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(VERBS[name], prog=f"vestige {name}", args=args, config=markers)
    finally:
        sys.stderr.write(re.sub(r"\x1b\[[0-9;]*m", "", complaint.getvalue()))


def _help() -> None:
    width = max(map(len, VERBS))
    output.say("Vestige judges models that keep learning after their data is gone.\n\nusage: vestige VERB [OPTIONS]\n")
    for name, verb in VERBS.items():
        output.say(f"  {name:<{width}}  {(verb.__doc__ or '').splitlines()[0]}")
    output.say(
        "\n'vestige VERB --help' shows the options of a verb; --version the version; --debug, anywhere, tracebacks."
        "\nTables become JSON with --json."
    )


def _sentence(error: BaseException) -> str:
    """What to tell somebody who does not want a traceback."""
    if isinstance(error, VestigeError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, OSError) and error.errno in FULL:
        return f"The answer or a file cannot be written: {error.strerror}."
    if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
        return "The memory of this machine, or what is allowed of it, does not suffice: give fewer rows or columns."
    return f"{type(error).__name__}: {error} (this should not happen; --debug shows where it did)"


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    output.warn(str(message) if issubclass(category, VestigeWarning) else f"{filename}:{lineno}: {message}")
