"""`vestige completion bash` and `vestige completion zsh`: a script that completes verbs, their options and file names.

    source <(vestige completion bash)      # in ~/.bashrc, or for this shell alone
    source <(vestige completion zsh)       # in ~/.zshrc, below compinit

The script is made of the verbs as they are and asks nothing when a key is pressed, so that it answers at once.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

BASH = """\
_vestige() {{
  local words="" place="${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{verbs}"
  else
    case "$place" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _vestige vestige
"""
ZSH = """\
#compdef vestige
_vestige() {{
  local -a found
  if (( CURRENT == 2 )); then
    found=({verbs})
  else
    case "$words[2] $words[3]" in
{cases}
    esac
  fi
  compadd -- $found
  if (( CURRENT > 2 )); then _files; fi
}}
compdef _vestige vestige
"""


def script(shell: str, verbs: Mapping[str, Callable[..., Any]]) -> str:
    """The script for one of the two shells."""
    cases = []
    for name, verb in verbs.items():
        under = sub_verbs(verb)
        cases += [(f'"{name} {word}"', options(kind)) for word, kind in under.items()]
        cases.append((f'"{name} "*', sorted(under) if under else options(verb)))
    made, form = (BASH, '      {}) words="{}" ;;') if shell == "bash" else (ZSH, "      {}) found=({}) ;;")
    lines = [form.format(place, " ".join(words)) for place, words in cases]
    return made.format(verbs=" ".join(verbs), cases="\n".join(lines))


def sub_verbs(verb: Callable[..., Any]) -> dict[str, type]:
    """The verbs under a verb, such as 'step' of 'monitor'."""
    hints = typing.get_type_hints(verb, include_extras=True).values()
    return {name: kind for hint in hints for name, kind in _named(hint)}


def _named(hint: Any) -> Iterator[tuple[str, type]]:  # noqa: ANN401 - a type
    """Classes under a name inside of a type."""
    kind, *marks = typing.get_args(hint) or (hint,)
    names = [mark.name for mark in marks if isinstance(getattr(mark, "name", None), str)]
    if dataclasses.is_dataclass(kind) and names:
        yield names[0], typing.cast("type", kind)
        return
    for part in typing.get_args(hint):
        yield from _named(part)


def options(verb: Callable[..., Any]) -> list[str]:
    """The options of a verb as they are typed."""
    fields = dataclasses.fields(typing.cast("Any", verb))
    return sorted(f"--{one.name.replace('_', '-')}" for one in fields if "Positional" not in str(one.type))
