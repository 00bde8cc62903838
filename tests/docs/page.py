"""The pages of the documentation: their code blocks, and the commands in them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from markdown_it import MarkdownIt

from tests.command_line import Run

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code blocks of a page in a language, in order."""
    return [
        t.content for t in MarkdownIt().parse(page.read_text()) if t.type == "fence" and t.info == language
    ]


def shell_lines(page: Path) -> list[str]:
    """The command lines of a page's sh blocks."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := line.split("  #")[0].strip())]


def commands(page: Path) -> list[str]:
    """Those of the tuner."""
    return [line for line in shell_lines(page) if line.startswith("tuner ")]


def run_commands(run: Run, page: Path, replace: Sequence[tuple[str, str]] = ()) -> None:
    """Run a page's commands one after the other in the present folder, as a reader would.

    They run in this process: the same program would need seconds to start again for each.

    Args:
        run: Runs the command line.
        page: The page.
        replace: What to write in the place of what stands in the commands.
    """
    for command in commands(page):
        here = command
        for old, new in replace:
            here = here.replace(old, new)
        here, _, target = here.partition(" > ")
        done = run(*shlex.split(here)[1:])
        assert done.code == 0, (command, done.out[-2000:], done.err[-2000:])
        if target:
            Path(target).write_text(done.out)
