"""`vestige monitor`, from files to exit codes, for people and for machines."""

import dataclasses
import json

import numpy as np
import pytest

from vestige.chains import Chain
from vestige.chains import chain as chain_module
from vestige.cli import main
from vestige.cli.monitor import FIRED, UNTOLD, alarms, by_task
from vestige.core.errors import InputError
from vestige.monitor import Alarm, DriftAlarm, Monitor

pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
START = ["--strategy", "every-step", "--divergences", "kl,js"]


@pytest.fixture
def drawn(tmp_path):
    """Files of samples by name: shift of the mean."""

    def draw(name, shift=0.0, seed=0):
        path = tmp_path / name
        np.save(path, np.random.default_rng(seed).normal(size=(150, 2)) + shift)
        return str(path)

    return draw


def test_a_life(tmp_path, drawn, capsys):
    where = str(tmp_path / "m")
    start = ["--divergences", "kl,js", "--rise", "js=0.1", "--strategy", "anchored"]
    assert main(["monitor", "start", where, *start]) == 0
    assert "js of any task is more than 0.1 higher than when it was learnt" in capsys.readouterr().out
    first = [f"--real=cats={drawn('p.npy')}", f"--model=cats={drawn('q.npy', 0.1, 1)}"]
    assert main(["monitor", "step", where, *first]) == 0
    out, err = capsys.readouterr()
    assert "Step 1, 1 task: no alarm fires." in out
    assert "average" in out
    second = ["--real", f"dogs={drawn('p2.npy', 5, 2)}", "--model", f"dogs={drawn('q2.npy', 5, 3)}"]
    assert main(["monitor", "step", where, *second, "--model", f"cats={drawn('q3.npy', 2.0, 4)}"]) == FIRED
    out, err = capsys.readouterr()
    assert "1 alarm fires, for task 'cats'." in out
    assert "warning: Step 2, task 'cats': js has risen by" in err
    assert main(["monitor", "show", where]) == FIRED
    assert main(["monitor", "show", where, "--divergence", "js"]) == FIRED
    out = capsys.readouterr().out
    assert "forgetting at the last step" in out
    assert "intransigence" in out
    page = tmp_path / "out.html"
    assert main(["monitor", "report", where, "-o", str(page)]) == 0
    assert "cats" in page.read_text()


@pytest.mark.slow
def test_a_life_of_incoming_data(tmp_path, drawn, capsys):
    """No generator anywhere: the data, a month like it, and one that is not."""
    where = str(tmp_path / "m")
    assert main(["monitor", "start", where, "--divergences", "js", "--steps-a-year", "12"]) == 0
    out = capsys.readouterr().out
    assert "Its first step needs --real TASK=FILE." in out
    assert "of years of 12 steps without change at most 5 % raise an alarm." in out
    assert main(["monitor", "step", where, "--real", f"cats={drawn('january.npy')}"]) == 0
    assert "Step 1, 1 task: no alarm fires." in capsys.readouterr().out
    assert main(["monitor", "show", where, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["table"], first["drift"], first["matrices"]) == ([], [], {})
    assert main(["monitor", "step", where, "--new", f"cats={drawn('february.npy', seed=1)}"]) == 0
    out = capsys.readouterr().out
    assert "drift tests of step 2" in out
    assert "p-value" in out
    assert main(["monitor", "step", where, "--model", f"cats={drawn('march.npy', 1.0, 2)}", "--json"]) == FIRED
    found = json.loads(capsys.readouterr().out)
    (alarm,) = found["alarms"]
    assert alarm["alarm"] == {"false_alarms": 0.05, "steps_a_year": 12} == found["thresholds"][0]
    assert found["drift"][0]["p_value"] == alarm["amount"] < alarm["low"] == pytest.approx(0.05 / 12)
    assert "at most 5 % raise an alarm" in found["watched"][0]
    assert main(["monitor", "show", where]) == FIRED
    assert "within its share of 0.0042 of false alarms" in capsys.readouterr().err


def test_the_numbers_are_those_of_the_library(tmp_path, drawn, capsys):
    where = str(tmp_path / "m")
    files = {name: drawn(f"{name}.npy", shift, seed) for seed, (name, shift) in enumerate((("p", 0), ("q", 0.3)))}
    assert main(["monitor", "start", where, *START, "--no-alarms", "--json"]) == 0
    capsys.readouterr()
    argv = ["--real", f"1={files['p']}", "--model", f"1={files['q']}", "--seed", "5", "--json"]
    assert main(["monitor", "step", where, *argv]) == 0
    found = json.loads(capsys.readouterr().out)
    chain = Chain("every-step", names=("kl", "js"))
    x = {name: np.load(file) for name, file in files.items()}
    chain.step({"1": x["p"]}, {"1": x["q"]}, seed=5)
    want = chain.divergences()
    assert [row["value"] for row in found["table"]] == want.value.tolist()
    assert found["tasks"] == [{"task": "1", "learnt": 1}]
    assert main(["monitor", "show", where, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["matrices"]["js"] == [[want[want.divergence == "js"].value.iloc[0]]]
    assert set(whole) >= {"forgetting", "intransigence", "fired", "thresholds"}


def refuse(monkeypatch, *tasks):
    """From now on the kl of `tasks` is refused."""
    whole = chain_module.report_of

    def refused(found, task, *rest, **options):
        own = whole(found, task, *rest, **options)
        if task not in tasks:
            return own
        return dataclasses.replace(own, estimates=own.estimates | {"kl": own.estimates["kl"].withdrawn("Too few.")})

    monkeypatch.setattr(chain_module, "report_of", refused)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("watched", "refused", "code"),
    [
        (["--above", "kl=-9"], [], FIRED),
        (["--above", "kl=-9"], ["a"], FIRED),  # that of b fires
        (["--above", "kl=-9"], ["a", "b"], UNTOLD),
        (["--above", "kl@a=-9"], ["a"], UNTOLD),
        (["--above", "kl@b=9"], ["a"], 0),  # nobody watches that of a
        (["--above", "js=9"], ["a", "b"], 0),
        (["--above", "js=-9", "--above", "kl=9"], ["a"], FIRED),
        (["--no-alarms"], ["a", "b"], 0),
    ],
)
def test_what_cannot_be_told_is_no_alarm(watched, refused, code, tmp_path, drawn, capsys, monkeypatch):
    where = str(tmp_path / "m")
    assert main(["monitor", "start", where, *START, *watched]) == 0
    sides = {"real": 0, "model": 1}
    given = [f"--{side}={t}={drawn(f'{side}{t}.npy', 0.0, seed)}" for side, seed in sides.items() for t in "ab"]
    refuse(monkeypatch, *refused)
    assert main(["monitor", "step", where, *given]) == code
    told = capsys.readouterr()
    assert main(["monitor", "show", where]) == code
    assert ("cannot be told" in told.out) == ("warning: Step 1, task 'a': the alarm on kl cannot be told" in told.err)
    capsys.readouterr()
    assert main(["monitor", "show", where, "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    watches = [task for task in refused if f"kl@{task}" in str(watched) or "kl=" in str(watched)]
    assert [one["task"] for one in found["refusals"]] == [one["task"] for one in found["refused"]] == watches
    assert all("Too few." in one["why"] for one in found["refusals"])
    assert bool(found["alarms"]) == bool(found["fired"]) == (code == FIRED)
    assert ("cannot be told" in told.out) == bool(watches)
    assert ("could not be told" in Monitor.open(where).report(tmp_path / "x.html").read_text()) == bool(watches)


def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(tmp_path, capsys):
    (tmp_path / "thesis" / "steps").mkdir(parents=True)
    (tmp_path / "thesis" / "state-000000").mkdir()
    file = tmp_path / "thesis" / "steps" / "000001.json"
    file.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    assert main(["monitor", "start", str(tmp_path / "thesis")]) == 2
    assert "new or empty folder" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    assert file.read_text() == "mine"


def test_a_monitor_of_numbered_tasks_goes_on_in_the_shell(tmp_path, drawn, capsys):
    monitor = Monitor.create(tmp_path / "m", chain={"strategy": "every-step", "names": ["js"]}, alarms=[])
    monitor.step({1: np.load(drawn("p.npy"))}, {1: np.load(drawn("q.npy", 0.1, 1))})
    assert main(["monitor", "step", str(tmp_path / "m"), "--model", f"1={drawn('r.npy', 0.1, 2)}"]) == 0
    assert Monitor.open(tmp_path / "m").tasks == {1: 1}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["start", "DIR"], "new or empty folder"),
        (["start", "NEW", "--above", "js"], "DIVERGENCE=LIMIT"),
        (["start", "NEW", "--above", "js=high"], "DIVERGENCE=LIMIT"),
        (["start", "NEW", "--above", "jss=1"], "Did you mean 'js'"),
        (["start", "NEW", "--above", "js=1", "--no-alarms"], "stand alone"),
        (["start", "NEW", "--features", "pcaa"], "Did you mean 'pca'"),
        (["start", "NEW", "--strategy", "anchor"], "anchored"),
        (["step", "DIR"], "given at the first step"),
        (["step", "DIR", "--model", "cats"], "must be TASK=FILE"),
        (["step", "DIR", "--model", "a=x.npy", "--model", "a=y.npy"], "must differ"),
        (["step", "DIR", "--model", "a=nowhere.npy"], "no such file"),
        (["step", "NEW", "--model", "a=b.npy"], "must hold a monitor"),
        (["show", "NEW"], "must hold a monitor"),
        (["report", "DIR", "-o", "x.txt"], "before the first step"),
        (["stop", "DIR"], "stop"),
        ([], "start"),
    ],
)
def test_misuse(argv, says, tmp_path, capsys):
    Monitor.create(tmp_path / "m", chain={"names": ["js"]})
    places = {"DIR": str(tmp_path / "m"), "NEW": str(tmp_path / "new")}
    code = main(["monitor", *(places.get(word, word) for word in argv)])
    out, err = capsys.readouterr()
    assert code == (1 if "first step" in says and argv[0] == "report" else 2), err
    assert says in err
    assert out == ""
    assert "Traceback" not in err


def test_alarms_from_words():
    none = {"false_alarms": None, "steps_a_year": None}
    found = alarms(above=["js=0.2", "kl@a=b@c=1e-1"], rise=["js=0.1"], jump=["kl@2=0.3"], drift=none, none=False)
    assert found == [
        Alarm("js", above=0.2),
        Alarm("kl", above=0.1, task="a=b@c"),
        Alarm("js", rise=0.1),
        Alarm("kl", rise=0.3, task="2", since="last"),
    ]
    assert alarms(above=[], rise=[], jump=[], drift=none, none=False) is None
    assert alarms(above=[], rise=[], jump=[], drift=none, none=True) == []
    assert alarms(above=[], rise=[], jump=[], drift=none | {"steps_a_year": 12}, none=False) == [DriftAlarm(0.05, 12)]
    for word in ("js@=1", "=1", "js=", "js=nan", "@a=1"):
        with pytest.raises(InputError, match="An alarm must be"):
            alarms(above=[word], rise=[], jump=[], drift=none, none=False)


def test_files_from_words():
    assert by_task(["a=b=c.npy", "7=x.csv"], "--model", [7]) == {"a": "b=c.npy", 7: "x.csv"}
    assert by_task(["7=x.csv"], "--model", ["7"]) == {"7": "x.csv"}


@pytest.mark.parametrize("action", ["start", "step", "show", "report"])
def test_every_action_has_help(action, capsys):
    assert main(["monitor", action, "--help"]) == 0
    assert f"usage: vestige monitor {action}" in capsys.readouterr().out
