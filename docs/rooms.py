"""What the site takes from elsewhere: a reference page for every room of the package, and REPRODUCTIONS.md."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "vestige"


def rooms() -> list[str]:
    """Every room, by name."""
    return sorted(path.stem for path in SOURCE.iterdir() if path.stem[0] not in "_." and path.suffix in ("", ".py"))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the reference at the end of the navigation."""
    assert config.nav is not None
    config.nav.append({"Reference": [{room: f"reference/{room}.md"} for room in rooms()]})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are written nowhere in docs/."""
    for room in rooms():
        page = f"# vestige.{room}\n\n::: vestige.{room}\n"
        files.append(File.generated(config, f"reference/{room}.md", content=page))
    files.append(File.generated(config, "reproductions.md", abs_src_path=str(ROOT / "REPRODUCTIONS.md")))
    return files
