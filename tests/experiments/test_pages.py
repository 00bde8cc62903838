"""The documentation's pages of experiments: written from what is stored, figures that a page can afford."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.experiments.benchmarks.report import BenchReport
from tuner.experiments.frame.about import LIVE
from tuner.experiments.frame.discovery import Declared, declared, papers
from tuner.experiments.frame.result import Result, row
from tuner.experiments.page import index_page, written_pages

ROOT = Path(__file__).parents[2]
RESULTS, DOCS = ROOT / "experiments" / "results", ROOT / "docs"
PAGES = written_pages(RESULTS, DOCS)
STORED = [
    one for name, one in declared().items() if one.about.paper != LIVE and (RESULTS / f"{name}.json").exists()
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_are_what_was_stored(path: Path) -> None:
    """Every page of measurements is written by `tuner experiment page`, and by no hand."""
    assert path.read_text(encoding="utf-8") == PAGES[path]


@pytest.mark.parametrize("experiment", STORED, ids=lambda one: one.about.name)
def test_pages_have_words_and_figures(experiment: Declared) -> None:
    """Each says what is reproduced and what is not, and shows a figure of less than 150 KB."""
    images = [*(DOCS / "experiments" / "images").glob(f"{experiment.about.name}*.png")]

    assert (RESULTS.parent / "notes" / f"{experiment.about.name}.md").exists()
    assert images
    assert all(image.stat().st_size < 150_000 for image in images)


@pytest.mark.parametrize("experiment", STORED, ids=lambda one: one.about.name)
def test_figures_can_be_drawn_from_what_was_stored(experiment: Declared, tmp_path: Path) -> None:
    """Drawing needs the stored result alone, and gives files that the page finds."""
    name = experiment.about.name

    figures = experiment.load().plot(Result.load(RESULTS / f"{name}.json"), tmp_path)

    assert figures
    for figure in figures:
        assert figure.stem == name or figure.stem.startswith(f"{name}-")
        assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_page_shows_figure_note_and_table(tmp_path: Path) -> None:
    """In this order: what was run, the figures, the words, the rows."""
    results, docs = tmp_path / "results", tmp_path / "docs"
    images = docs / "experiments" / "images"
    images.mkdir(parents=True)
    (results.parent / "notes").mkdir()
    results.mkdir()
    Result(
        experiment="symphony-table2", seeds=2, seconds=60, command="tuner ...", rows=[row("x", [1.0, 2.0])]
    ).save(results / "symphony-table2.json")
    (images / "symphony-table2.png").write_bytes(b"")
    (tmp_path / "notes" / "symphony-table2.md").write_text("Some words.\n")

    page = written_pages(results, docs)[docs / "experiments" / "symphony-table2.md"]

    parts = [
        "`tuner ...`",
        "2 seeds, 1 min",
        "(images/symphony-table2.png)",
        "Some words.",
        "| x |  | 1.5 | 1 | 2 |",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("note", "order"),
    [
        ("Reached.\n\n**How**: quickly.\n", ["Reached.", "| x |", "**How**: quickly."]),
        ("Some words.\n", ["| x |", "Some words."]),
    ],
)
def test_a_live_experiment_shows_its_verdict_before_its_table(
    tmp_path: Path, note: str, order: list[str]
) -> None:
    """What stands before `**How**` in a note is the verdict; a note without it stands under the table."""
    (tmp_path / "results").mkdir()
    (tmp_path / "notes").mkdir()
    stored = Result(experiment="triton-cpu", seeds=1, rows=[row("x", [1.0])])
    stored.save(tmp_path / "results" / "triton-cpu.json")
    (tmp_path / "notes" / "triton-cpu.md").write_text(note)

    page = written_pages(tmp_path / "results", tmp_path)[tmp_path / "results.md"]
    page = page[page.index("\n## ") :]  # behind the overview

    places = [page.index(part) for part in order]
    assert places == sorted(places)
    assert "\n\n\n" not in page


def test_pages_without_results_stay(tmp_path: Path) -> None:
    """They are not replaced by empty ones."""
    results = tmp_path / "results"
    results.mkdir()
    Result(experiment="triton-cpu", seeds=1, rows=[row("x", [1.0])]).save(results / "triton-cpu.json")

    assert [*written_pages(results, tmp_path)] == [tmp_path / "results.md"]
    (results / "triton-cpu.json").unlink()
    BenchReport(benchmark="engine", command="", seconds=1, repeats=1, rows=[]).save(
        results / "bench-engine.json"
    )
    assert [*written_pages(results, tmp_path)] == [tmp_path / "benchmarks.md"]


def test_results_elsewhere_have_the_words_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless they have their own."""
    monkeypatch.chdir(tmp_path)
    for folder in ("elsewhere", "experiments/notes"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "experiments" / "notes" / "triton-cpu.md").write_text("Some words.\n")
    stored = tmp_path / "elsewhere" / "triton-cpu.json"
    Result(experiment="triton-cpu", seeds=1, rows=[row("x", [1.0])]).save(stored)

    pages = [written_pages(stored.parent, tmp_path)]
    (tmp_path / "notes").mkdir()
    pages.append(written_pages(stored.parent, tmp_path))

    assert ["Some words." in page[tmp_path / "results.md"] for page in pages] == [True, False]


def test_the_index_links_what_has_a_page(tmp_path: Path) -> None:
    """Also one of before, whose result is elsewhere. An experiment without one is listed without a link."""
    assert "| symphony-table2 |" in index_page(tmp_path, tmp_path, tmp_path)
    assert "[symphony-table2](symphony-table2.md)" in index_page(RESULTS, tmp_path, tmp_path)
    assert "[symphony-table2](symphony-table2.md)" in index_page(tmp_path, tmp_path, DOCS / "experiments")


def test_experiments_are_grouped_by_paper() -> None:
    """Every experiment is in one group, and the live ones have a page together."""
    grouped = [one.about.name for group in papers().values() for one in group]

    assert grouped == list(declared())
    assert "triton-sweep" in {one.about.name for one in papers()[LIVE]}
