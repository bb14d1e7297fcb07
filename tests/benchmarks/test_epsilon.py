"""The benchmark of privacy with an epsilon: its tables and verdicts are those of what is stored."""

import json

import pytest
from benchmarks.privacy import epsilon


def stored(tmp_path, level, value):
    """Results of one family as a run would have left them: `level` of the tests reject, FID is off by `value` - 1."""
    size = {
        f"{name} {side}": [1.0, 0.5, 1.5] for name in ("fid_extrapolated", "mmd2") for side in ("private", "no noise")
    }
    size["fid_extrapolated private"] = [value, 0.5, 1.5]
    sizes = [{"drift": drift} | size for drift in epsilon.SIZED]
    levels = [{"m": 500, "private": 0.01 if k < 100 * level else 0.5} for k in range(100)]
    powers = [{"drift": "shift", "m": 500, "size": 0.1, "private": 0.2, "no noise": 0.01}]
    parts = {"size": {"0": sizes}, "level": {"0": levels}, "power": {"0": powers}}
    known = {drift: {"fid": 1.0, "mmd2": 1.0} for drift in epsilon.SIZED}
    attacks = {"all others": 0.56, "of the Gaussian": 0.562, "moments": 0.51, "anybody": 0.73}
    found = {"version": epsilon.VERSION, "truth": known, "attacks": attacks, "parts": parts}
    (tmp_path / "epsilon-mnist-public.json").write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("level", "value", "missed"), [(0.05, 1.1, {"power lost"}), (0.2, 1.2, {"level", "error of fid", "power lost"})]
)
def test_a_target_that_is_missed_is_named(tmp_path, monkeypatch, level, value, missed):
    monkeypatch.setattr(epsilon, "FOLDER", tmp_path)
    stored(tmp_path, level, value)
    told = epsilon.verdicts()
    assert len(told) == len(epsilon.TARGETS)
    assert {one.split(" in [")[0] for one in told if "not met" in one} == missed


def test_the_tables_print_what_is_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(epsilon, "FOLDER", tmp_path)
    monkeypatch.setattr(epsilon, "JS_FILE", tmp_path / "none.json")
    stored(tmp_path, 0.05, 1.1)
    assert epsilon.main(["--markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| mnist | public | 0.050 ± 0.022 | 100 | 0.000 | 1.000 | 1 |" in printed
    assert "| mnist | public | 0.510 | 0.560 | 0.562 | 0.730 |" in printed
    assert "| mnist | public | shift | 1 | 0.100 | 0.100 | 1.00 | 1 | 0.000 | 0.000 | 1.00 | 1 |" in printed
