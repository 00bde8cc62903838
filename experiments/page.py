"""The documentation's pages of measurements, written from the stored results and the notes beside them."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.benchmarks.page import benchmarks_page
from tuner.experiments.frame.about import LIVE, About
from tuner.experiments.frame.discovery import papers
from tuner.experiments.frame.result import Result, Row

__all__ = ["index_page", "results_page", "written_pages"]

HEADER = """# What was measured

Every number in the tables comes from a stored result in `experiments/results/`, made by the command named
with it; the notes also quote earlier runs and trials by hand, which are not stored. The page is written by
`tuner experiment page`. Targets are what we set out to reach; where a figure misses one, the note under it
says why. The machine: two shared cores of a virtual machine without a GPU, the load generator on the same
two cores; `gpu-proof` ran on another one, as its note says.
"""

INDEX = """# The papers' tables and figures, again

Each page shows one table or figure of a paper beside what `tuner experiment run NAME` measures, and says
what is reproduced, what is not and why; some show what goes beyond the papers. All is measured in
simulation but for `sim-to-real`, which runs on a live Triton, and `nexus-fig15`, which executes models. The
pages are written by `tuner experiment page` from the results stored in `experiments/results/` and the notes
beside them. What else was measured on live servers is on [a page of its own](../results.md).
"""
PAGE = """# {title}

{paper} · `{command}` ({made})
"""


def written_pages(results: Path, docs: Path) -> dict[Path, str]:
    """Return every page that is written from stored results, by its file.

    Args:
        results: Where the results are stored; ``notes`` with a ``NAME.md`` each lie beside it.
        docs: The folder of the documentation. Figures that lie in ``experiments/images`` there are shown.

    Raises:
        StorageError: A stored result is damaged.
    """
    notes, folder = results.parent / "notes", docs / "experiments"
    pages = {
        docs / "results.md": results_page(results, notes),
        docs / "benchmarks.md": benchmarks_page(results),
        folder / "README.md": index_page(results),
    }
    for experiment in _with_pages():
        path = results / f"{experiment.name}.json"
        if path.exists():
            note = _note(notes, experiment.name)
            page = _experiment_page(experiment, Result.load(path), note, folder / "images")
            pages[folder / f"{experiment.name}.md"] = page
    return pages


def index_page(results: Path) -> str:
    """Return the list of the papers' experiments as Markdown."""
    parts = [INDEX]
    for paper, experiments in papers().items():
        if paper == LIVE:
            continue
        parts += [f"## {paper}\n", "| experiment | what it shows | minutes |", "|---|---|---:|"]
        for experiment in (one.about for one in experiments):
            stored = (results / f"{experiment.name}.json").exists()
            name = f"[{experiment.name}]({experiment.name}.md)" if stored else experiment.name
            parts.append(f"| {name} | {experiment.title} | {experiment.minutes:g} |")
        parts.append("")
    return "\n".join(parts)


def _with_pages() -> list[About]:
    return [one.about for paper, group in papers().items() if paper != LIVE for one in group]


def _experiment_page(experiment: About, result: Result, note: str, images: Path) -> str:
    """Return the page of one experiment: figures, the words of its note, the table."""
    name = experiment.name
    parts = [
        PAGE.format(
            title=experiment.title, paper=experiment.paper, command=result.command, made=_made(result)
        )
    ]
    figures = sorted([*images.glob(f"{name}.png"), *images.glob(f"{name}-*.png")])
    parts += [f"![{experiment.title}](images/{figure.name})\n" for figure in figures]
    if note:
        parts.append(note)
    return "\n".join([*parts, *_table(result, "published", len(result.rows)), ""])


def _note(notes: Path, name: str) -> str:
    path = notes / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def results_page(folder: Path, notes: Path) -> str:
    """Return the page as Markdown.

    Args:
        folder: Where the results are stored.
        notes: A folder with a ``NAME.md`` for each experiment that needs words.

    Raises:
        StorageError: A stored result is damaged.
    """
    parts = [HEADER]
    for experiment in (one.about for one in papers()[LIVE]):
        path = folder / f"{experiment.name}.json"
        if path.exists():
            parts.append(_section(experiment, Result.load(path)))
            if note := _note(notes, experiment.name):
                parts.append(note)
    return "\n".join(parts)


def _section(about: About, result: Result) -> str:
    lines = [
        f"## {about.title}",
        "",
        f"`{result.command}` ({_made(result)})",
        "",
        *_table(result, "target", about.shown),
    ]
    return "\n".join([*lines, ""])


def _made(result: Result) -> str:
    """When a result was made, and with what effort."""
    seeds = "seed" if result.seeds == 1 else "seeds"
    took = f"{result.seconds / 60:.0f}" if result.seconds >= 30 else "under 1"
    return f"{result.started[:10]}, {result.seeds} {seeds}, {took} min"


def _table(result: Result, published: str, most: int) -> list[str]:
    lines = [
        f"| figure | {published} | measured | low | high | unit | note |",
        "|---|---:|---:|---:|---:|---|---|",
        *[_line(row) for row in result.rows[:most]],
    ]
    if len(result.rows) > most:
        more = len(result.rows) - most
        lines.append(f"\n{more} more rows are in `experiments/results/{result.experiment}.json`.")
    return lines


def _line(row: Row) -> str:
    numbers = ["" if v is None else f"{v:,.4g}" for v in (row.published, row.measured, row.low, row.high)]
    return f"| {row.id} | {' | '.join(numbers)} | {row.unit} | {row.note} |"
