"""The export is OpenMetrics, by a parser that is not ours, and says what the last step found."""

import datetime
import math
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_text

from vestige.cli import main
from vestige.core import Estimate
from vestige.monitor import Alarm, Monitor
from vestige.monitor.openmetrics import names, openmetrics

G = np.random.default_rng(0)
ODD = 'ca"t\\s\nof {1}'


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitors") / 'the "judge"'
    made = Monitor.create(folder, alarms=[Alarm("js", above=0.05)], chain={"names": ["js", "kl"]})
    made.step(real={ODD: G.normal(size=(300, 2)), 1: G.normal(size=(200, 2))})
    made.step(new={ODD: G.normal(2, 1, size=(150, 2)), 1: G.normal(size=(120, 2))})
    return made


def families(text, parser=text_string_to_metric_families):
    return {family.name: family for family in parser(text)}


def samples(family):
    return {tuple(sample.labels[key] for key in sorted(sample.labels) if key != "monitor"): sample.value
            for sample in family.samples}  # fmt: skip


def test_a_strict_parser_reads_what_the_last_step_found(judge, tmp_path, capsys):
    path = tmp_path / "judge.prom"
    assert main(["monitor", "export", str(judge.folder), "--openmetrics", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    text = path.read_text()
    assert text.endswith("# EOF\n")
    found = families(text)
    assert {family.type for family in found.values()} == {"gauge"}
    assert all(family.documentation for family in found.values())
    when = found["vestige_monitor_last_step_timestamp_seconds"]
    assert when.unit == "seconds"
    told = datetime.datetime.fromisoformat(judge.history[-1].when).timestamp()
    assert samples(when) == {(): told}
    assert {sample.labels["monitor"] for family in found.values() for sample in family.samples} == {'the "judge"'}
    for own in judge.history[-1].report.tasks:
        for name, estimate in own.estimates.items():
            key = name, str(own.task)
            for end, value in (("", estimate.value), ("_low", estimate.low), ("_high", estimate.high)):
                written = samples(found[f"vestige_monitor_divergence{end}"]).get(key, math.nan)
                assert written == pytest.approx(value, nan_ok=True)
            assert samples(found["vestige_monitor_refused"])[key] == (not estimate.known)
        assert samples(found["vestige_monitor_p_value"])[(str(own.task),)] == own.p_value
        assert samples(found["vestige_monitor_fid"])[(str(own.task),)] == own.fid.value
    assert samples(found["vestige_monitor_alarms"]) == {(ODD,): 1, ("1",): 0}
    assert samples(found["vestige_monitor_rows"]) == {("new", ODD): 150, ("new", "1"): 120}
    assert samples(found["vestige_monitor_steps"]) == {(): 2}
    assert families(text, older_text).keys() == found.keys()  # as the textfile collector reads it


def test_before_the_first_step_there_is_a_count_alone(tmp_path):
    made = Monitor.create(tmp_path / "m")
    found = families(made.export(tmp_path / "m.prom").read_text())
    assert {name: samples(family) for name, family in found.items()} == {"vestige_monitor_steps": {(): 0}}


def test_what_is_refused_has_no_value(judge):
    step = judge.history[-1]
    *others, one = step.report.tasks
    refused = replace(one, estimates={**one.estimates, "js": Estimate.refused("too far", name="js")})
    step = replace(step, report=replace(step.report, tasks=(*others, refused)))
    found = families(openmetrics("m", [judge.history[0], step], (), ()))
    assert samples(found["vestige_monitor_refused"])["js", "1"] == 1
    assert ("js", "1") not in samples(found["vestige_monitor_divergence"])
    assert ("kl", "1") in samples(found["vestige_monitor_divergence"])


def test_tasks_that_look_alike_are_quoted():
    assert names([1, "1", "a"]) == {1: "1", "1": "'1'", "a": "'a'"}
    assert names([1, "a"]) == {1: "1", "a": "a"}


def test_an_export_that_fails_leaves_what_was_there(judge, tmp_path, monkeypatch):
    path = judge.export(tmp_path / "m.prom")
    before = path.read_text()

    def full(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space left"):
        judge.export(path)
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == ["m.prom"]
