"""Builds the documentation as a site: ``make docs``.

The pages are those of the folder ``docs``, those in the repository's own folder where people look for them,
and the generated reference. Links that lead to no page of the site lead into the repository. A warning ends
the build.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/servetune/servetune"
COPIED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "ROADMAP.md": "roadmap.md",
    "SECURITY.md": "reporting.md",
}
"""Page in the repository's own folder -> its place in the site."""
NAVIGATION = {
    "Start": ["tutorial"],
    "How-to": [
        *("attach", "tfserving", "daemon", "dispatch", "adapters", "train", "workloads", "simulate"),
        *(
            "mixed-instances",
            "plan-instances",
            "plan-cluster",
            "plan-partition",
            "plan-query",
            "plan-prefix",
            "plan-replay",
        ),
    ],
    "Reference": [
        *(
            "reference/commands",
            "reference/exit-codes",
            "reference/files",
            "reference/metrics",
            "reference/http",
        ),
        *("compatibility", "agents", "environments", "words", "reference/python"),
    ],
    "Help": ["troubleshooting"],
    "Background": ["design", "estimator", "security", "results", "benchmarks", "experiments/README"],
    "Project": ["contributing", "roadmap", "reporting", "changelog"],
}
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[#)])")
SHOWN = {".md", ".png", ".svg"}
"""Kinds of files of the folder ``docs`` that are part of the site."""


def main() -> int:
    """Write the site into ``build/site``; return the exit code of Sphinx."""
    from sphinx.cmd.build import main as sphinx

    source, site = ROOT / "build" / "pages", ROOT / "build" / "site"
    shutil.rmtree(source, ignore_errors=True)
    for place, text in pages().items():
        (source / place).parent.mkdir(parents=True, exist_ok=True)
        (source / place).write_text(text)
    for picture in (ROOT / "docs").rglob("*"):
        if picture.suffix in SHOWN - {".md"}:
            place = source / picture.relative_to(ROOT / "docs")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, place)
    settings = str(Path(__file__).parent)
    return sphinx(
        [
            "-q",
            "-W",
            "--keep-going",
            "-E",
            "-d",
            str(ROOT / "build" / "doctrees"),
            "-c",
            settings,
            str(source),
            str(site),
        ]
    )


def pages() -> dict[str, str]:
    """Return the text of each page, by its place in the site."""
    sys.path[:0] = [str(Path(__file__).parent)]
    import reference

    sources = {path: path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    sources |= {ROOT / name: place for name, place in COPIED.items()}
    places = {path.relative_to(ROOT).as_posix(): place for path, place in sources.items()}
    found = {place: relinked(path, place, places) for path, place in sources.items()} | reference.pages()
    found["index.md"] += "".join(_contents(title, names) for title, names in NAVIGATION.items())
    found["experiments/README.md"] += _contents("", sorted(_papers(found)))
    return found


def relinked(path: Path, place: str, places: dict[str, str]) -> str:
    """Return a page's text with links that hold in the site.

    Args:
        path: The page's file.
        place: Its place in the site.
        places: Place in the site of every page, by its path in the repository.
    """

    def lead(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(path.parent / found[0]))
        if "://" in found[0] or not target.exists():
            return found[0]
        name = target.relative_to(ROOT).as_posix()
        inside = places.get(name) or (name.removeprefix("docs/") if target.suffix in SHOWN else "")
        if inside:
            return os.path.relpath(inside, os.path.dirname(place) or ".")
        return f"{REPOSITORY}/{'tree' if target.is_dir() else 'blob'}/main/{name}"

    return LINK.sub(lead, path.read_text())


def _contents(title: str, names: list[str]) -> str:
    lines = "\n".join([*([f":caption: {title}"] if title else []), "", *names])
    return f"\n```{{toctree}}\n:hidden:\n{lines}\n```\n"


def _papers(found: dict[str, str]) -> list[str]:
    experiments = [Path(place) for place in found if place.startswith("experiments/")]
    return [place.stem for place in experiments if place.stem != "README"]


if __name__ == "__main__":
    sys.exit(main())
