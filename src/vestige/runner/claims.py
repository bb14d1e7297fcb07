"""Claims: what a paper says, as sentences that are checked; the rule that is printed is the rule that is applied.

    rule = Rule(
        Claim("RWalk is above GEM", lambda mean: Finding(mean["RWalk"] > mean["GEM"], shown(mean))),
        Claim("GEM is above iCaRL", lambda mean: Finding(mean["GEM"] > mean["iCaRL"])),
    )
    str(rule)         # "(a) RWalk is above GEM; (b) GEM is above iCaRL. Reproduced if all hold; partly if ..."
    rule.judge(mean)  # Verdict("partly", "Holds: RWalk is above GEM (RWalk 70.1, GEM 65.4). Does not hold: ...", ...)

A claim is checked on `facts`, what an experiment reads from its Records, and may be checked case by case (a data set
each). A case that was not measured is left out. Claims are named by letters in their order; conditions for "reproduced"
and "partly" are put together from `those`, `half`, `some` and `in_one_case` with `&` and `|`, which carry their own
words. What only serves the condition for "partly" stands in `beside`. A rule that turns out to be wrong is replaced
together with the reason, and its verdict stays visible: `Rule(..., earlier=the_old_one, because="...")`.

How far a verdict hangs on chance is asked by leaving out one seed after the other: `Experiment.verdict` says whether it
stays, and whether the same claims hold.

What is said of a result is said in one sentence, which carries what the runs lack of the published setting: "partly,
with 3 of 10 seeds and 500 of about 6000 training rows a class: 2 of 4 claims hold." One seed is "preliminary" whatever
its numbers say, and a run of the preset `smoke` has "no verdict": `Experiment.verdict` decides both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Any, Literal, NamedTuple

Word = Literal["reproduced", "partly", "not", "not judged", "preliminary", "no verdict"]
TOO_SMALL = "too small to judge"
STANDS: Mapping[str, str] = {
    "reproduced": "is reproduced",
    "partly": "is reproduced in part",
    "not": "is not reproduced",
    "not judged": "is not judged",
    "preliminary": "is preliminary",
    "no verdict": "has no verdict",
}
LONGEST_GROUND = 140  # letters of a ground that may stand in the first sentence of a page
MANY_CASES = 8  # of a claim, from which on only those in which it does not hold are named
NAMED = 2  # cuts that are named in the sentence of a verdict; the others stand below it


@dataclass(frozen=True)
class Verdict:
    """Whether the paper's finding came out, by the experiment's own rule, on what ground, and with what cut.

    `claims` says how many claims hold, `cut` what the runs lack of the published setting, as it follows the word;
    `held` is whether each claim holds, by its letter and case; `hangs_on` are the seeds without any one of which the
    word would be another, None where there are too few to leave one out.
    """

    word: Word
    why: str
    claims: str = ""
    cut: str = ""
    held: Mapping[str, bool] = field(default_factory=dict, hash=False)
    hangs_on: tuple[int, ...] | None = None

    def __str__(self) -> str:
        head = ", ".join(filter(None, (self.word, self.cut)))
        said = " ".join(filter(None, (f"{self.claims}." if self.claims else "", self.why)))
        return f"{head}: {said}" if said else f"{head}."

    def same_claims(self, other: Verdict) -> bool:
        """Whether the word is the same, and the same claims hold in every case that both have measured."""
        both = self.held.keys() & other.held.keys()
        return self.word == other.word and all(self.held[each] == other.held[each] for each in both)

    def sentence(self, item: str) -> str:
        """The first sentence of a page on `item`, a table or a figure: how it stands, with what cut, on what ground."""
        first = self.why.partition(". ")[0].removesuffix(".")
        ground = self.claims or (first if len(first) <= LONGEST_GROUND else "")
        head = ", ".join(filter(None, (f"{item[:1].upper()}{item[1:]} {STANDS[self.word]}", self.cut)))
        return f"{head}: {ground}." if ground else f"{head}."


def with_cuts(cuts: Sequence[str]) -> str:
    """Cuts as they follow a verdict's word: "with A, B and C"; after the first `NAMED` they are counted."""
    named = [*cuts[:NAMED], *([f"{len(cuts) - NAMED} more cuts (below)"] if len(cuts) > NAMED + 1 else cuts[NAMED:])]
    if len(named) < 2:
        return f"with {named[0]}" if named else ""
    if len(named) == 2 or not any("," in cut for cut in named):
        return f"with {', '.join(named[:-1])} and {named[-1]}"
    return f"with {'; '.join(named[:-1])}; and {named[-1]}"


class NotJudged(Exception):
    """Raised where Records lack what a rule reads; its words say what."""


class Finding(NamedTuple):
    """Whether a claim holds in one case, None where it was not measured; `words` are the numbers."""

    holds: bool | None
    words: str = ""
    case: str = ""

    def __str__(self) -> str:
        said = ": ".join(part for part in (self.case, self.words) if part)
        return said if self.holds or not self.case else f"not {said}"


Found = Mapping[str, Sequence[Finding]]  # the findings that were measured, by the letter of their claim


@dataclass(frozen=True)
class Claim:
    """A sentence, and how it is checked: facts -> a finding, or one for each case."""

    sentence: str
    check: Callable[[Any], Finding | Iterable[Finding]]

    def findings(self, facts: Any) -> tuple[Finding, ...]:  # noqa: ANN401 - the experiment's own
        """Those that were measured."""
        found = self.check(facts)
        each = (found,) if isinstance(found, Finding) else tuple(found)
        return tuple(finding for finding in each if finding.holds is not None)

    def told(self, findings: Sequence[Finding]) -> str:
        """The sentence with its numbers; of cases without, and of many, only those in which it does not hold."""
        few = len(findings) < MANY_CASES
        named = [str(f) for f in findings if str(f) and ((f.words and few) or not f.holds)]
        if len(findings) > 1:
            named = [f"{sum(bool(f.holds) for f in findings)} of {len(findings)}", *named]
        return f"{self.sentence} ({'; '.join(named)})" if named else self.sentence


@dataclass(frozen=True)
class Condition:
    """When a verdict is given: in words, and applied to what was found."""

    words: str
    holds: Callable[[Found], bool]

    def __and__(self, other: Condition) -> Condition:
        either = "either " * (", or " in other.words)
        words = f"{self.words} and {either}{other.words}"
        return Condition(words, lambda found: self.holds(found) and other.holds(found))

    def __or__(self, other: Condition) -> Condition:
        return Condition(f"{self.words}, or {other.words}", lambda found: self.holds(found) or other.holds(found))


def those(*letters: str) -> Condition:
    """All of these claims hold, in every case."""
    words = f"{_listed(letters)} hold{'s' * (len(letters) == 1)}"
    return Condition(words, lambda found: all(found[x] and all(f.holds for f in found[x]) for x in letters))


def half(*letters: str) -> Condition:
    """At least half of these claims, or of their cases, hold; of all claims where none is named."""

    def holds(found: Found) -> bool:
        each = [f for x in letters or found for f in found[x]]
        return bool(each) and 2 * sum(bool(f.holds) for f in each) >= len(each)

    return Condition(f"at least half of {_listed(letters)} hold" if letters else "at least half do", holds)


def some(*letters: str) -> Condition:
    """One of these claims holds, in one case at least."""
    words = f"{_listed(letters, 'or')} holds{' in one case' * (len(letters) == 1)}"
    return Condition(words, lambda found: any(f.holds for x in letters for f in found[x]))


def in_one_case(condition: Condition) -> Condition:
    """The condition holds for one of the cases at least."""

    def holds(found: Found) -> bool:
        cases = {f.case for each in found.values() for f in each}
        return any(condition.holds({x: [f for f in e if f.case == case] for x, e in found.items()}) for case in cases)

    return Condition(f"in one case {condition.words}", holds)


def shown(numbers: Mapping[str, float], form: str = ".3g") -> str:
    """Numbers with their names, as a finding carries them."""
    return ", ".join(f"{name} {value:{form}}" for name, value in numbers.items())


def at_least(bound: float, numbers: Mapping[str, float]) -> Finding:
    """None of the numbers is below the bound."""
    return Finding(min(numbers.values()) >= bound, shown(numbers))


def at_most(bound: float, numbers: Mapping[str, float]) -> Finding:
    """None of the numbers is above the bound."""
    return Finding(max(numbers.values()) <= bound, shown(numbers))


def need(found: Iterable[str], wanted: Iterable[str]) -> None:
    """Refuse to judge unless everything wanted was run."""
    found = list(found)
    if not set(wanted) <= set(found):
        raise NotJudged(f"Only {', '.join(found)} has been run." if found else "No run of today's setting is there.")


class Rule:
    """Claims, and which of them make a result "reproduced" or "partly" so; by default all, and at least half."""

    def __init__(
        self,
        *claims: Claim,
        beside: Sequence[Claim] = (),
        reproduced: Condition | None = None,
        partly: Condition | None = None,
        note: str = "",
        earlier: Rule | None = None,
        because: str = "",
    ) -> None:
        self.claims, self.note, self.earlier, self.because = claims, note, earlier, because
        self.letters = dict(zip(ascii_lowercase, (*claims, *beside), strict=False))
        self.asked = tuple(ascii_lowercase[: len(claims)])
        self.reproduced = reproduced or self._all(named=bool(beside))
        self.partly = partly or half(*(self.asked if beside else ()))

    def __str__(self) -> str:
        if not self.letters:
            return self.note
        stated = "; ".join(f"({letter}) {claim.sentence}" for letter, claim in self.letters.items())
        asked = f"Reproduced if {self.reproduced.words}; partly if {self.partly.words}; not otherwise."
        replaced = f'It replaces an earlier rule, since {self.because}: "{self.earlier}"' if self.earlier else ""
        return " ".join(filter(None, (f"{stated}.", asked, self.note, replaced)))

    def judge(self, facts: Any) -> Verdict:  # noqa: ANN401 - the experiment's own
        """The rule, applied: the word, which claims hold and which do not, with their numbers."""
        found = {letter: claim.findings(facts) for letter, claim in self.letters.items()}
        if not self.letters:
            return Verdict("not judged", "")
        if not any(found[letter] for letter in self.asked):
            return Verdict("not judged", "Nothing that the rule reads was measured.")
        told: dict[str, list[str]] = {"Holds": [], "Does not hold": [], "Not measured": []}
        for letter, claim in self.letters.items():
            held = all(f.holds for f in found[letter])
            key = "Not measured" if not found[letter] else "Holds" if held else "Does not hold"
            told[key].append(claim.told(found[letter]))
        why = " ".join(f"{words}: {'; '.join(said)}." for words, said in told.items() if said)
        if self.earlier is not None:
            why += f" By the earlier rule: {self.earlier.judge(facts).word}."
        claims = _counted([each for each in found.values() if each])
        by_case = {f"{letter} {f.case}".rstrip(): bool(f.holds) for letter, each in found.items() for f in each}
        word: Word = "reproduced" if self.reproduced.holds(found) else "partly" if self.partly.holds(found) else "not"
        return Verdict(word, why, claims, held=by_case)

    def _all(self, *, named: bool) -> Condition:
        """Every claim that is asked for and was measured holds."""
        words = those(*self.asked).words if named or len(self.asked) == 1 else "all hold"
        return Condition(words, lambda found: all(f.holds for x in self.asked for f in found[x]))


def _counted(measured: Sequence[Sequence[Finding]]) -> str:
    """How many claims hold, and of how many cases if there are more cases than claims."""
    held, cases = sum(all(f.holds for f in each) for each in measured), [f for each in measured for f in each]
    said = f"{held} of {len(measured)} claims hold{'s' * (held == 1)}"
    if len(measured) == 1:
        said = f"its claim {'holds' if held else 'does not hold'}"
    if len(cases) == len(measured):
        return said
    return f"{said} in every case ({sum(bool(f.holds) for f in cases)} of {len(cases)} cases)"


def _listed(letters: Sequence[str], last: str = "and") -> str:
    named = [f"({letter})" for letter in letters]
    return f" {last} ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
