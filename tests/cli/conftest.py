"""One run of `vestige demo` with small settings, for every test that looks at one."""

import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from vestige.cli import main
from vestige.cli.demo import jobs as demo
from vestige.cli.demo.drift import DriftConfig, GeneratorConfig
from vestige.cli.demo.jobs import LearnersConfig

SMALL = demo.DemoConfig(
    drift=DriftConfig(digits=2, samples=200, dims=3, generator=GeneratorConfig(hidden=64, steps=400)),
    learners=LearnersConfig(
        tasks=2, epochs=1, hidden=(16,), fields={"vcl": {"train_samples": 1, "test_samples": 2, "fit_steps": 5}}
    ),
)


@dataclass(frozen=True)
class Demo:
    """Where it wrote, what it found, what it printed, and what a bar would have heard."""

    folder: Path
    found: demo.DemoResult
    printed: str
    heard: list


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory):
    """`vestige demo --seed 3`, once."""
    folder, real, found, heard = tmp_path_factory.mktemp("demo") / "report", demo.run, [], []

    def run(on_progress, **given):
        def both(what, share):
            heard.append((what, share))
            on_progress(what, share)

        found.append(real(on_progress=both, **given))
        return found[0]

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(demo, "DEFAULT", SMALL)
        patch.setattr(demo, "run", run)
        assert main(["demo", "--seed", "3", "--out", str(folder)]) == 0
    return Demo(folder, found[0], printed.getvalue(), heard)
