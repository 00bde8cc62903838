"""`tuner experiment` and `tuner bench` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Run
from tuner.experiments.frame.result import Result, row


def test_the_list_is_grouped_by_paper(run: Run) -> None:
    """Every experiment with its paper."""
    ended = run("experiment", "list")

    assert ended.code == 0
    assert ended.said.index("A live server") < ended.said.index("triton-sweep") < ended.said.index("Symphony")
    assert ended.said.index("Symphony") < ended.said.index("symphony-table2")


def test_run_stores_rows_and_figures(run: Run, tmp_path: Path) -> None:
    """The JSON has the agreed fields; the figure lies where it was asked for."""
    ended = run("experiment", "run", "symphony-analytic", "--json", "out/a.json", "--plot", "figures")

    stored = json.loads((tmp_path / "out" / "a.json").read_text())
    assert ended.code == 0
    assert {"experiment", "seeds", "seconds", "rows"} <= set(stored)
    assert set(stored["rows"][0]) == {"id", "published", "measured", "low", "high", "unit", "note"}
    assert Result.load(tmp_path / "out" / "a.json").command.startswith(
        "tuner experiment run symphony-analytic"
    )
    assert "figures/symphony-analytic.png" in ended.said
    assert (tmp_path / "figures" / "symphony-analytic.png").stat().st_size < 150_000


def test_pages_are_written_from_stored_results(run: Run, tmp_path: Path) -> None:
    """Page, figure and index."""
    run("experiment", "run", "symphony-analytic")
    ended = run("experiment", "page")

    folder = tmp_path / "docs" / "experiments"
    assert ended.code == 0
    assert "symphony-analytic.md" in ended.said
    assert "images/symphony-analytic.png" in (folder / "symphony-analytic.md").read_text()
    assert (folder / "images" / "symphony-analytic.png").exists()
    assert "symphony-analytic.md" in (folder / "README.md").read_text()


def test_a_folder_without_results_replaces_no_page(run: Run, tmp_path: Path) -> None:
    """Such as a misspelt one."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text("what was measured")

    ended = run("experiment", "page", "--results", "reslts")

    assert ended.code == 2
    assert "error: --results: no results in reslts" in ended.err
    assert (tmp_path / "docs" / "results.md").read_text() == "what was measured"


def test_an_experiment_without_a_figure_says_so_before_it_runs(run: Run) -> None:
    """Nothing is measured in vain."""
    ended = run("experiment", "run", "triton-profile", "--plot", ".")

    assert ended.code == 2
    assert "--plot" in ended.said


@pytest.mark.parametrize("name", ["symphony-analytic", "dispatch-faults"])
def test_a_limit_of_foreign_processes_that_nothing_heeds_is_refused(run: Run, name: str) -> None:
    """Before anything is measured; it was ignored."""
    ended = run("experiment", "run", name, "--quick", "--foreign-limit", "0.5")

    assert ended.code == 2
    assert f"error: --foreign-limit: {name} sets no window aside by it; leave it out" in ended.err


def test_gpu_proof_says_that_there_is_no_gpu(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, before a server is started."""
    monkeypatch.setattr("tuner.profiler.gpu.Gpus.__len__", lambda _: 0)

    ended = run("experiment", "run", "gpu-proof")

    assert ended.code == 2
    assert "error: gpu-proof: the NVIDIA driver shows no GPU on this machine" in ended.err


def test_a_quick_run_leaves_stored_results_alone(run: Run, tmp_path: Path) -> None:
    """Without ``--json`` its result goes into the folder of runs."""
    ended = run("experiment", "run", "symphony-analytic", "--quick")

    assert ended.code == 0
    assert (tmp_path / "runs" / "experiments" / "symphony-analytic.json").exists()
    assert not (tmp_path / "experiments").exists()


def test_results_are_compared(run: Run, tmp_path: Path) -> None:
    """With themselves they are the same; a changed row ends with exit code 1 and is named."""
    run("experiment", "run", "symphony-analytic", "--json", "before/symphony-analytic.json")
    result = Result.load(tmp_path / "before" / "symphony-analytic.json")
    changed = [row.model_copy(update={"measured": 0.0}) for row in result.rows[:1]] + result.rows[1:]
    (tmp_path / "after").mkdir()
    result.model_copy(update={"rows": changed}).save(tmp_path / "after" / "symphony-analytic.json")

    same = run("experiment", "same", "before", "before")
    other = run("experiment", "same", "before", "after")

    assert (same.code, other.code) == (0, 1)
    assert "symphony-analytic: same" in same.said
    assert f"row '{result.rows[0].id}'" in other.said


def test_what_measures_live_servers_is_said_not_to_be_compared(run: Run, tmp_path: Path) -> None:
    """Beside what is compared; alone it is refused."""
    for folder, measured in (("before", 1.0), ("after", 2.0)):
        (tmp_path / folder).mkdir()
        Result(experiment="triton-cpu", seeds=1, rows=[row("CPU saved", [measured])]).save(
            tmp_path / folder / "triton-cpu.json"
        )
    alone = run("experiment", "same", "before", "after")
    for folder in ("before", "after"):
        stored = Result(experiment="symphony-table2", seeds=1, rows=[row("a", [1.0])])
        stored.save(tmp_path / folder / "symphony-table2.json")

    ended = run("experiment", "same", "before", "after")

    assert (alone.code, ended.code) == (2, 0)
    assert "error: BEFORE: all results in before are of live servers, which are not compared" in alone.err
    assert "triton-cpu: not compared, it measures a live server" in ended.said
    assert "symphony-table2: same" in ended.said


def test_bench_shows_and_stores_rows(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With value, unit, baseline and ratio."""
    from tuner.experiments.benchmarks import decision

    monkeypatch.setattr(decision, "QUICK", 500)

    ended = run("bench", "decision", "--quick", "--repeats", "1", "--json", "b.json")

    stored = json.loads((tmp_path / "b.json").read_text())
    assert ended.code == 0
    assert "symphony, 1 x 8, arrive" in ended.said
    assert {"id", "value", "unit", "baseline", "ratio"} <= set(stored["rows"][0])


def test_an_unknown_benchmark_is_named(run: Run) -> None:
    """The error lists what there is."""
    ended = run("bench", "everything")

    assert ended.code == 2
    assert "engine, scheduler, decision" in ended.said
