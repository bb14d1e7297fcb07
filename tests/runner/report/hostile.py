"""Records that no run has left: what stands in the file, its digests right, and the key that is at fault."""

import copy
import json

from runner.report.planted import bare
from vestige import store

GONE = object()  # in the place of a value: the field is not there
DEEP = json.loads("[" * 200 + "]" * 200)
WIDE = "w" * 5000
HALF = "\ud800"  # of a pair, which JSON can say


def search(**changes):
    tried = {"set": {"lr": 1}, "scores": [0.5], "records": ["a"]}
    return {"on": "validation data", "chosen": {"lr": 1}, "tried": [tried | changes]}


# field -> what stands there, and the key that the refusal names where it is another than the field.
TABLE = [
    *(("config", value) for value in (None, 3, "words", [], [["a", 1]], {"experiment": None}, {"experiment": []})),
    *(("config", {"experiment": name}) for name in ("", " ", "../up", "a/b", ".hidden", "a\nb", HALF, {"a": 1})),
    *(("config", value) for value in ({"a": DEEP}, {"a": HALF}, {HALF: 1}, {"a": 10**40})),
    *(("seed", value) for value in (None, "0", 0.5, True, [0], {}, 2**70, "nan", GONE)),
    *(("head", value) for value in (None, 3, ["single"], {}, "nowhere", True, GONE)),
    *(("matrices", value) for value in (None, 3, [], "x", {"single": None}, {"single": 0.5}, {"single": []})),
    *(("matrices", {"single": value}) for value in ([[1, 2], [3]], [["1"]], [[True]], [[[1]]], "1", {"tensor": "x"})),
    *(("matrices", {"single": value}) for value in ([[1, 2, 3]], [[]], [[1], 2], DEEP, [[10**400]], [[{}]], [[1e300]])),
    ("matrices", {"single": [[0.5]], "": [[0.5]]}),
    ("matrices", {"multi": [[0.5] * 3] * 3}, "head"),
    *(("reference", value) for value in (3, "x", [[1, 2, 3]], [1, "2", 3], {}, [0.5, 0.5], True)),
    *(("baseline", value) for value in (None, [], {"single": 3}, {"single": [1, 2]}, {"single": ["a"] * 3})),
    *(("seconds", value) for value in (None, [], {"train": 3}, {"train": ["x"]}, {"train": [None]}, {"": [1.0]})),
    *(
        ("seconds", value)
        for value in ({"train": {"a": 1}}, {"train": [[1.0]]}, {"train": [True]}, {"train": [10**400]})
    ),
    *(("bytes", value) for value in (None, {"peak": [0.5]}, {"peak": "x"}, {"peak": [10**30]}, {"peak": [None]}, [])),
    *(("task_names", value) for value in (None, "abc", [1, 2, 3], ["a"], {"a": 1}, [HALF] * 3, [None] * 3)),
    *(("values", value) for value in (None, [], {"a": "x"}, {"a": {}}, {"a": [1, [2]]}, {"": [1]}, {"a": [False]})),
    *(("details", value) for value in (None, [], {"command": 3}, {"run": 3}, {"verdicts": 3}, {"verdicts": [1]})),
    *(("details", {"search": value}) for value in (3, [], {}, search(scores=3), search(set=[]), search(records=[1]))),
    *(("details", value) for value in ({"refused": 3}, {"better": 3}, {"a": DEEP}, {"verdicts": {"a": []}})),
    *(("audit", value) for value in (3, [], "x", {}, {"answers": 3}, {"subject": 3}, {"class": "Record"})),
    *(("learner", value) for value in (None, 3, [], HALF)),
    *(("structure", value) for value in (None, "abc", [1], {"a": 1})),
    *(("version", value) for value in (None, 3, {"learner": "1"}, {"learner": True}, {"learner": 1.5}, {"": 1})),
    *(("versions", value) for value in (None, [], {"torch": 2}, {"torch": None}, "x")),
    *(("machine", value) for value in (None, [], "x", {"cores": DEEP})),
    ("id", None),
    ("id", 3),
    ("id", "0" * 16),
    ("unknown", 1),
    (WIDE, 1, "w" * 10),
    *((name, GONE) for name in ("config", "matrices", "values", "details", "audit", "version", "machine")),
    *(("code", value, "versions") for value in (3, None, [])),
]


def document(field, value):
    """The file of a Record with `value` for `field`, digests and, where it can be, id that fit."""
    fields = json.loads(json.dumps(bare()._fields()))
    fields = copy.deepcopy(fields) | {field: value}
    if value is GONE:
        del fields[field]
    if field != "id":
        try:
            code = {"code": fields["code"]} if "code" in fields else {}
            ran = {"config": fields["config"], "seed": fields["seed"]} | code
            if not code:
                raised = {name: number for name, number in fields["version"].items() if number != 1}
                ran |= {"version": raised}
                if "experiment" not in fields["config"]:
                    ran |= {"learner": fields["learner"], "structure": fields["structure"]}
            fields["id"] = store.content_id(ran)
        except (KeyError, TypeError, AttributeError, ValueError):
            pass
    digest = {
        key: store.objects._digest(store.canonical(value).encode("utf-8", "surrogatepass"))
        for key, value in fields.items()
    }
    whole = {"format": "vestige/record", "version": 1, "digests": digest, "tensors": None}
    return whole | {"tensors_digest": store.objects._digest(b"null"), "fields": fields}
