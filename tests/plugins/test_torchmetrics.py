"""Metrics of torchmetrics give what the library gives, batch by batch and from two processes."""

import json
import multiprocessing

import numpy as np
import pytest

pytest.importorskip("torchmetrics", reason="the extra 'frameworks' is not installed")

import vestige as vs
from plugins.two_processes import metrics, rows, shared
from vestige.core.errors import InputError
from vestige.metrics import fid, kid
from vestige.metrics.mmd import bandwidth_of, mmd
from vestige.plugins.torchmetrics import FIDMetric, JSMetric, KIDMetric, MMDMetric

pytestmark = pytest.mark.frameworks
REAL, NEW = rows()


def over_batches(metric, new=NEW, size=64):
    for batch in new.split(size):
        metric.update(batch)
    return float(metric.compute())


def test_against_rows_they_are_the_functions_of_the_library():
    far = REAL + 1e6, NEW + 1e6  # where plain sums of squares lose their digits
    assert over_batches(FIDMetric(far[0]), far[1]) == pytest.approx(fid(REAL, NEW).value, rel=1e-6)
    assert over_batches(KIDMetric(REAL)) == pytest.approx(kid(REAL, NEW).value, rel=1e-9)
    exact = mmd(REAL, NEW, bandwidth=bandwidth_of(None, REAL, REAL)).value
    assert over_batches(MMDMetric(REAL, frequencies=20_000)) == pytest.approx(exact, rel=0.1)
    assert over_batches(JSMetric(REAL)) == pytest.approx(vs.compare(REAL, NEW).divergences["js"].value)


def test_against_a_vestige_no_row_of_the_data_is_needed():
    real, new = REAL[:200], NEW[:200]
    kept = vs.keep(real, third=True)
    found = vs.compare(kept, new).metrics
    assert over_batches(FIDMetric(kept), new) == pytest.approx(found["fid"].value, rel=1e-9)
    assert over_batches(KIDMetric(kept), new) == pytest.approx(found["kid"].value, rel=1e-6)
    assert over_batches(MMDMetric(kept, frequencies=20_000), new) == pytest.approx(found["mmd2"].value, abs=0.02)
    with pytest.raises(InputError, match="must be kept with third=True"):
        KIDMetric(vs.keep(real))


def test_reset_forgets_and_numpy_is_taken():
    for metric in (FIDMetric(REAL), JSMetric(REAL, rows=50)):
        metric.update(REAL.numpy() + 5)
        metric.reset()
        metric.update(NEW.numpy())
        value = float(metric.compute())
        again = type(metric)(REAL, **({"rows": 50} if isinstance(metric, JSMetric) else {}))
        again.update(NEW)
        assert value == float(again.compute())
    with pytest.raises(InputError, match=r"'new' of FIDMetric must be 3 features wide. Got 2"):
        FIDMetric(REAL).update(NEW[:, :2])
    with pytest.warns(UserWarning, match="before"), pytest.raises(InputError, match="at least 2"):
        FIDMetric(REAL).compute()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork where threads may run: none does
def test_two_processes_give_what_one_gives(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    forked = multiprocessing.get_context("fork")  # each would import for seconds what is imported here
    started = [forked.Process(target=shared, args=(rank, tmp_path)) for rank in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join(240)
    assert [process.exitcode for process in started] == [0, 0]
    found = json.loads((tmp_path / "found.json").read_text())
    alone = {name: over_batches(metric) for name, metric in metrics(REAL).items()}
    for name in ("fid", "kid", "mmd"):
        assert found[name] == pytest.approx(alone[name], rel=1e-9), name
    assert found["js"] == pytest.approx(alone["js"], abs=0.05)  # of samples of 100 and 160 rows, and of one of 200
    assert np.isfinite(found["js"])
