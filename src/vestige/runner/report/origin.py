"""Where the numbers come from: commands, seeds, code, software, machine, and every configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vestige.continual.record import Record
from vestige.runner.report.arms import Arm, flatten, short
from vestige.show import Part, Table, Verbatim

# A configuration of this many letters or fewer stands in a table cell; a longer one is cut, the Record has it whole.
LONGEST = 200


def origin(arms: Sequence[Arm]) -> list[Part]:
    """Enough to make the same numbers again."""
    records = [record for arm in arms for record in arm.records]
    ran = commands(records)
    runs = [(arm.label, _seeds(arm.records), ", ".join(record.id for record in arm.records)) for arm in arms]
    return [
        *(
            [Verbatim("\n".join(ran))]
            if ran
            else ["These runs were made from Python; the settings below give them again."]
        ),
        Table("Runs", ("method", "seeds", "Records"), runs),
        *searched(arms),
        *settings(arms),
        Table("Made by and on", ("what", "value"), made(records)),
    ]


def commands(records: Iterable[Record]) -> list[str]:
    """The lines for a shell, each once."""
    return sorted({f"vestige {r.details['command']}" for r in records if "command" in r.details})


def searched(arms: Sequence[Arm]) -> list[Part]:
    """Settings that were chosen on validation data, with everything that was tried."""
    rows: list[tuple[str, str, float, str]] = []
    for arm in arms:
        note = arm.first.details.get("search") or {"tried": [], "chosen": None}
        for tried in note["tried"]:
            won = "yes" if tried["set"] == note["chosen"] else "no"
            told = ", ".join(f"{field}={short(value)}" for field, value in tried["set"].items())
            rows.append((arm.label, told, arm.line("score", tried["scores"]).ours, won))
    return [Table("Searched on validation data", ("method", "tried", "mean score", "chosen"), rows)] if rows else []


def made(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Software and machine, with every value that occurs; the versions of the results first."""
    facts: dict[str, list[str]] = {"version of the results": [record.edition for record in records]}
    for record in records:
        for name, value in [*record.versions.items(), *record.machine.items()]:
            facts.setdefault(name, []).append(short(value))
    return [(name, ", ".join(dict.fromkeys(values))) for name, values in facts.items()]


def settings(arms: Sequence[Arm]) -> list[Part]:
    """What all arms share, and what each has of its own; of runs of the protocol, what the run itself says."""
    own = [flatten(arm.first.config) for arm in arms]
    fields = list(dict.fromkeys(field for config in own for field in config))
    shared = [f for f in fields if all(f in config and config[f] == own[0].get(f) for config in own)]
    parts: list[Part] = [Table("Settings that all share", ("field", "value"), [(f, _cut(own[0][f])) for f in shared])]
    apart = [field for field in fields if field not in shared]
    if apart:
        rows = [(arm.label, *(_cut(c[f]) if f in c else None for f in apart)) for arm, c in zip(arms, own, strict=True)]
        parts.append(Table("Settings of each", ("method", *apart), rows))
    return [part for part in parts if isinstance(part, Table) and part.rows]


def _seeds(records: Sequence[Record]) -> str:
    return ", ".join(str(record.seed) for record in records)


def _cut(value: object) -> str:
    text = short(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
