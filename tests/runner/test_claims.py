"""Claims: the rule in print is the rule that is applied, and every condition can fail."""

import pytest

from vestige.continual.record import Record
from vestige.runner.claims import (
    Claim,
    Finding,
    NotJudged,
    Rule,
    at_least,
    at_most,
    half,
    in_one_case,
    need,
    shown,
    some,
    those,
)
from vestige.runner.experiment import Experiment


def stated(*holds, **options):
    """A rule whose claims hold as the facts say."""
    claims = [Claim(f"claim {i}", lambda facts, i=i: facts[i]) for i in range(len(holds))]
    beside = options.pop("beside", 0)
    rule = Rule(*claims[: len(claims) - beside], beside=claims[len(claims) - beside :], **options)
    return rule, [x if isinstance(x, list | Finding) else Finding(x) for x in holds]


def word(*holds, **options):
    rule, facts = stated(*holds, **options)
    return rule.judge(facts).word


def test_all_is_reproduced_half_is_partly_fewer_is_not():
    assert word(True) == word(True, True) == "reproduced"
    assert word(True, False) == word(True, True, False) == word(True, False, True, False) == "partly"
    assert word(True, False, False) == word(False) == word(False, False) == "not"


def test_what_was_not_measured_does_not_count():
    assert word(True, None) == "reproduced"
    assert word(True, False, None, None) == "partly"
    assert word(None, None) == "not judged"
    assert word([], [Finding(None)]) == "not judged"


def test_print_and_verdict_come_from_the_same_sentences():
    rule, facts = stated(True, False, None, note="One seed is not judged.")
    assert str(rule) == (
        "(a) claim 0; (b) claim 1; (c) claim 2. Reproduced if all hold; partly if at least half do; not otherwise. One "
        "seed is not judged."
    )
    assert rule.judge(facts).why == "Holds: claim 0. Does not hold: claim 1. Not measured: claim 2."


def test_of_many_cases_those_are_named_in_which_a_claim_does_not_hold():
    each = [Finding(i > 0, f"{i}.0", f"case {i}") for i in range(8)]
    rule, facts = stated(each[1:], each)
    assert rule.judge(facts).why == (
        "Holds: claim 0 (7 of 7; " + "; ".join(f"case {i}: {i}.0" for i in range(1, 8)) + "). "
        "Does not hold: claim 1 (7 of 8; not case 0: 0.0)."
    )


def test_a_rule_that_was_replaced_is_told_with_the_reason_and_its_verdict():
    old, facts = stated(True, False, False)
    rule = Rule(old.claims[0], earlier=old, because="two of its claims were ours")
    assert str(rule).endswith(f'It replaces an earlier rule, since two of its claims were ours: "{old}"')
    found = rule.judge(facts)
    assert (found.word, found.why) == ("reproduced", "Holds: claim 0. By the earlier rule: not.")


def test_numbers_and_cases_stand_beside_the_sentence():
    cases = [Finding(True, "1.5", "mnist"), Finding(False, case="digits"), Finding(True, case="cifar")]
    rule, facts = stated(Finding(True, shown({"VCL": 95.25}, ".1f")), cases)
    assert (
        rule.judge(facts).why == "Holds: claim 0 (VCL 95.2). Does not hold: claim 1 (2 of 3; mnist: 1.5; not digits)."
    )


def test_a_bound_is_for_every_number_and_may_be_met():
    numbers = {"VCL": 1.0, "VGR": 2.0}
    assert at_most(2.0, numbers) == at_least(1.0, numbers) == Finding(True, "VCL 1, VGR 2")
    assert at_most(1.9, numbers) == at_least(1.1, numbers) == Finding(False, "VCL 1, VGR 2")


@pytest.mark.parametrize(
    ("condition", "words", "yes", "no"),
    [
        (those("a", "c"), "(a) and (c) hold", (True, False, True), (True, True, False)),
        (those("a"), "(a) holds", (True, False, False), (None, True, False)),
        (half("b", "c"), "at least half of (b) and (c) hold", (False, True, False), (True, False, False)),
        (some("a", "b"), "(a) or (b) holds", (False, True, False), (False, False, True)),
        (those("a") & some("b", "c"), "(a) holds and (b) or (c) holds", (True, False, True), (False, True, True)),
        (those("a") | those("b", "c"), "(a) holds, or (b) and (c) hold", (False, True, True), (False, False, True)),
    ],
)
def test_a_condition_says_what_it_asks(condition, words, yes, no):
    assert condition.words == words
    assert word(*yes, partly=condition) == "partly"
    assert word(*no, partly=condition) == "not"
    assert f"partly if {words}" in str(stated(*yes, partly=condition)[0])


def test_one_case_must_meet_the_whole_condition():
    def cases(*holds):
        return [Finding(h, case=str(i)) for i, h in enumerate(holds)]

    condition = in_one_case(those("a", "b"))
    assert condition.words == "in one case (a) and (b) hold"
    assert word(cases(True, False), cases(True, False), reproduced=condition) == "reproduced"
    assert word(cases(True, False), cases(False, True), reproduced=condition) == "partly"
    assert word(cases(True, False), cases(False, False), reproduced=condition, partly=those("b")) == "not"


def test_claims_beside_decide_only_what_is_partly():
    assert word(False, True, beside=1, partly=those("b")) == "partly"
    assert word(True, False, beside=1, partly=those("b")) == "reproduced"
    rule, _ = stated(True, True, beside=1)
    assert "Reproduced if (a) holds; partly if at least half of (a) hold" in str(rule)


def test_what_was_not_run_is_not_judged():
    class Lacking(Experiment):
        """Asks for what is not there."""

        rule = Rule(Claim("it is there", lambda facts: Finding(True)))

        def run(self, config, seed, on_progress): ...

        def lines(self, records): ...

        def facts(self, records):
            need([r.config["row"] for r in records], ["a", "b"])
            return records

        def remarks(self, facts):
            return "Well."

    first, second = (Record({"row": row}, 0) for row in "ab")
    assert Lacking().by_rule([first]).why == "Only a has been run."
    assert Lacking().by_rule([]).word == "not judged"
    assert Lacking().by_rule([second, first]).why == "Holds: it is there. Well."
    with pytest.raises(NotJudged, match="No run of today"):
        need([], ["a"])
