"""What the site takes from elsewhere: a page for every package and sub-package, REPRODUCTIONS.md and BENCHMARKS.md."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
DISTRIBUTED = ("vestige", "vestige_papers")


def packages() -> list[str]:
    """Every public package and sub-package, by its dotted name, each before those inside of it."""
    found = (
        init.parent.relative_to(SOURCE).parts for name in DISTRIBUTED for init in (SOURCE / name).rglob("__init__.py")
    )
    return [".".join(parts) for parts in sorted(found) if not any(part.startswith("_") for part in parts)]


def page(package: str) -> str:
    """The package's own docstring, then its modules; sub-packages have pages of their own."""
    folder = SOURCE.joinpath(*package.split("."))
    modules = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    parts = [f"# {package}", f"::: {package}\n    options: {{show_submodules: false}}"]
    for module in modules:
        name = f"{package}.{module}"
        parts.append(
            f"::: {name}\n    options: {{show_root_heading: true, show_root_toc_entry: true, heading_level: 2}}"
        )
    return "\n\n".join(parts) + "\n"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the reference at the end of the navigation."""
    assert config.nav is not None
    config.nav.append({"Reference": [{name: f"reference/{name}.md"} for name in packages()]})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are written nowhere in docs/."""
    for name in packages():
        files.append(File.generated(config, f"reference/{name}.md", content=page(name)))
    for name in ("REPRODUCTIONS.md", "BENCHMARKS.md"):
        index = (ROOT / name).read_text().replace("](docs/", "](")
        files.append(File.generated(config, name.lower(), content=index))
    return files
