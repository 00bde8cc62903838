"""The documentation's pages of measurements, written from the stored results and the notes beside them."""

from __future__ import annotations

import re
from pathlib import Path

from tuner.errors import InvalidInput
from tuner.experiments.benchmarks.catalogue import BENCHMARKS
from tuner.experiments.benchmarks.page import benchmarks_page
from tuner.experiments.frame.about import LIVE, About
from tuner.experiments.frame.discovery import papers
from tuner.experiments.frame.result import Result, Row, has_result
from tuner.experiments.verdict import HOW, verdict_of

__all__ = ["check_results", "index_page", "results_page", "written_pages"]

NOTES = Path("experiments/notes")
"""The notes of this repository, for results that have none beside them."""

HEADER = """# What was measured

Every number in the tables comes from a stored result in `experiments/results/`, made by the command named
with it; the notes also quote earlier runs and trials by hand, which are not stored. The page is written by
`tuner experiment page`. Targets are what we set out to reach. Each section gives its verdict first, then the
figures, then how they were measured and what explains them. The machine: two shared cores of a virtual
machine without a GPU, the load generator on the same two cores; `gpu-proof` ran on another one, as its note
says.

The verdict of each, in a word; *in part* where something was missed:

| experiment | verdict | in a sentence |
|---|---|---|
"""

INDEX = """# The papers' tables and figures, again

Each page shows one table or figure of a paper beside what `tuner experiment run NAME` measures, and says
what is reproduced, what is not and why; some show what goes beyond the papers. All is measured in
simulation but for `sim-to-real`, which runs on a live Triton, and `nexus-fig15`, which executes models. The
pages are written by `tuner experiment page` from the results stored in `experiments/results/` and the notes
beside them. What else was measured on live servers is on [a page of its own](../results.md).

A verdict says whether what the paper has is *reproduced*, or a target of ours *reached*; *in part* where
something was missed, and empty where there is nothing to judge by. An experiment without a page has no
stored result. How many minutes each takes, `tuner experiment list` says.

In the tables, *measured* is the median of the seeds, and *low* and *high* are the least and the greatest,
unless the page says of what else. *Published* is what the paper has, and empty where it gives no number; what
a row's note calls a target is ours.

A seed repeats what is simulated to the last digit on the same kind of processor. On another one NumPy's
exponential may differ in its last bit, which most results do not show. Kairos' goodput moves by one or two
per cent ([kairos-fig3](kairos-fig3.md)), and so do some configurations of the simulated GPU server (the rows
of [rrl-fig6](rrl-fig6.md) by 0.1 % at most).
"""
PAGE = """# {title}

{paper} · `{command}` ({made})
"""


def check_results(results: Path) -> None:
    """Check before figures are drawn that there is something to write pages from.

    Raises:
        InvalidInput: The folder has no result of an experiment, and no report of a benchmark.
        StorageError: It cannot be read.
    """
    if not _stored(results, [*_live(), *_with_pages()]) and not _measured(results):
        fix = "store one there with `tuner experiment run NAME --json FILE`"
        raise InvalidInput("--results", f"no results in {results}", fix)


def written_pages(results: Path, docs: Path) -> dict[Path, str]:
    """Return every page that is written from stored results, by its file.

    A page without any stored result is not written, so that the one that is there stays.

    Args:
        results: Where the results are stored; ``notes`` with a ``NAME.md`` each lie beside it, or else in
            ``experiments``.
        docs: The folder of the documentation. Figures that lie in ``experiments/images`` there are shown.

    Raises:
        StorageError: A stored result is damaged.
    """
    notes, folder = results.parent / "notes", docs / "experiments"
    if not notes.is_dir():
        notes = NOTES
    pages = {}
    if _stored(results, _live()):
        pages[docs / "results.md"] = results_page(results, notes)
    if _measured(results):
        pages[docs / "benchmarks.md"] = benchmarks_page(results, notes)
    stored = _stored(results, _with_pages())
    if stored:
        pages[folder / "README.md"] = index_page(results, notes, folder)
    for experiment in stored:
        note, result = _note(notes, experiment.name), Result.load(results / f"{experiment.name}.json")
        page = _experiment_page(experiment, result, note, folder / "images")
        pages[folder / f"{experiment.name}.md"] = page
    return pages


def index_page(results: Path, notes: Path, pages: Path) -> str:
    """Return the list of the papers' experiments, with the verdict of each, as Markdown.

    Args:
        results: Where the results are stored.
        notes: A folder with a ``NAME.md`` for each experiment that needs words.
        pages: The folder of the list and of the experiments' pages. One that is there is linked, too.
    """
    parts = [INDEX]
    for paper, experiments in papers().items():
        if paper == LIVE:
            continue
        parts += [
            f"## {paper}\n",
            "| experiment | what it shows | verdict | in a sentence |",
            "|---|---|---|---|",
        ]
        for experiment in (one.about for one in experiments):
            page = f"{experiment.name}.md"
            linked = has_result(results, experiment.name) or (pages / page).exists()
            name = f"[{experiment.name}]({page})" if linked else experiment.name
            word, sentence = verdict_of(_note(notes, experiment.name))
            parts.append(f"| {name} | {experiment.title} | {word} | {sentence} |")
        parts.append("")
    return "\n".join(parts)


def _measured(results: Path) -> bool:
    """Whether there is the report of a benchmark."""
    return any(has_result(results, f"bench-{name}") for name in BENCHMARKS)


def _stored(results: Path, experiments: list[About]) -> list[About]:
    return [one for one in experiments if has_result(results, one.name)]


def _live() -> list[About]:
    return [one.about for one in papers()[LIVE]]


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
    stored = _stored(folder, _live())
    overview = [_overview(experiment, _note(notes, experiment.name)) for experiment in stored]
    parts = [f"{HEADER}{''.join(overview)}"]
    for experiment in stored:
        result = Result.load(folder / f"{experiment.name}.json")
        parts.append(_section(experiment, result, _note(notes, experiment.name)))
    return "\n".join(parts)


def _overview(about: About, note: str) -> str:
    """Return the line of one experiment in the overview: where it stands, and its verdict."""
    word, sentence = verdict_of(note)
    return f"| [{about.name}](#{_anchor(about.title)}) | {word} | {sentence} |\n"


def _anchor(title: str) -> str:
    """Return what a link to a heading names, as GitHub and the documentation's site make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _section(about: About, result: Result, note: str) -> str:
    """Return one experiment of the page: its verdict, the table, the rest of its note.

    The verdict is what stands before `**How**` in the note; a note without it stands under the table.
    """
    verdict, how, rest = note.partition(HOW)
    if not how:
        verdict, rest = "", note
    lines = [f"## {about.title}", "", f"`{result.command}` ({_made(result)})", ""]
    if verdict:
        lines += [verdict]
    lines += [*_table(result, "target", about.shown), ""]
    if rest:
        lines += [f"{how}{rest}".lstrip("\n")]
    return "\n".join(lines)


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
