"""Declarations: what the frame makes of tasks, seeds and answers, and that all experiments are found."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.experiments.quick import quick
from tuner.errors import InvalidInput
from tuner.experiments.frame.about import LIVE
from tuner.experiments.frame.discovery import Declared, declared, find
from tuner.experiments.frame.experiment import (
    Answers,
    Experiment,
    Scaled,
    SequentialExperiment,
    experiment,
)
from tuner.experiments.frame.options import ExperimentOptions, Watcher
from tuner.experiments.frame.result import Row, row
from tuner.laboratory.progress import Advance, Bars


@experiment(name="squares", title="Squares of numbers", minutes=0.1)
class Squares(Experiment[int, int]):
    """Squares, and the seeds that they were measured with."""

    first_seed = 1
    numbers = Scaled((5, 3, 3, 2), quick=(3,))

    def tasks(self) -> Sequence[int]:
        return self.numbers

    def seeds_of(self, task: int) -> Sequence[int]:
        return super().seeds_of(task)[:1] if task == 2 else super().seeds_of(task)

    def alone(self, task: int) -> bool:
        return task == 2

    def measure(self, task: int, seed: int) -> int:
        self.report(f"{task} with seed {seed}")
        return task * task + seed

    def rows(self, found: Answers[int, int]) -> Iterator[Row]:
        for task, answers in found.items():
            yield row(f"{task}", answers)

    def configuration(self) -> dict[str, object]:
        return {"numbers": len(self.numbers)}


@experiment(name="prepared", title="What was prepared", minutes=0.1)
class Prepared(Experiment[int, int]):
    """Measures with what it has prepared."""

    def prepare(self) -> None:
        self._halves = {4: 2, 6: 3}

    def tasks(self) -> Sequence[int]:
        return (4, 6)

    def measure(self, task: int, seed: int) -> int:
        return self._halves[task] + seed

    def rows(self, found: Answers[int, int]) -> Iterator[Row]:
        for task, answers in found.items():
            yield row(f"{task}", answers)


@experiment(name="steps", title="Some steps", minutes=0.1, repeated=False)
class Steps(SequentialExperiment[str]):
    """A sequence that says what it does."""

    def proceed(self) -> str:
        self.report("one step")
        return "done"

    def rows(self, found: Answers[None, str]) -> Iterator[Row]:
        yield row(found[None][0], [1.0])


@pytest.mark.parametrize("workers", [1, 2])
def test_answers_are_paired_with_their_tasks_and_seeds(workers: int) -> None:
    """Equal tasks are measured once; each has the seeds that it asks for."""
    result = Squares(ExperimentOptions(seeds=3, workers=workers)).run()

    assert [(one.id, one.low, one.high) for one in result.rows] == [
        ("5", 26.0, 28.0), ("3", 10.0, 12.0), ("2", 5.0, 5.0),
    ]  # fmt: skip
    assert (result.experiment, result.seeds, result.configuration) == ("squares", 3, {"numbers": 4})


@pytest.mark.parametrize("workers", [1, 2])
def test_what_was_prepared_is_there_wherever_it_is_measured(workers: int) -> None:
    """Also in processes of their own."""
    result = Prepared(ExperimentOptions(seeds=1, workers=workers)).run()

    assert [(one.id, one.measured) for one in result.rows] == [("4", 2.0), ("6", 3.0)]


def test_ctrl_c_keeps_the_seeds_that_are_complete() -> None:
    """The result is that of a run that was asked for so many."""
    seen: list[str] = []
    stopping = Squares(ExperimentOptions(seeds=4, workers=1), Watcher(report=seen.append, bars=stop_after(4)))

    result = stopping.run()

    assert stopping.stopped
    assert seen[-1] == "stopped: of 4 seeds, 2 are complete; they are summarised"
    assert result == Squares(ExperimentOptions(seeds=2, workers=1)).run()


def test_ctrl_c_before_any_seed_is_complete_ends_it() -> None:
    """There is nothing to summarise."""
    watcher = Watcher(bars=stop_after(1))

    with pytest.raises(KeyboardInterrupt):
        Squares(ExperimentOptions(seeds=3, workers=1), watcher).run()


def stop_after(answers: int) -> Bars:
    """Return bars that press Ctrl-C once so many answers have come."""
    left = iter(range(answers))

    @contextmanager
    def bars(description: str, total: int) -> Iterator[Advance]:
        def advance() -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        yield advance

    return bars


def test_a_quick_run_is_smaller() -> None:
    """Sizes follow the options; of the class itself they are the usual ones."""
    assert [one.id for one in quick(Squares).run().rows] == ["3"]
    assert Squares.numbers == (5, 3, 3, 2)


def test_those_who_watch_see_lines_and_bars() -> None:
    """What runs in this process reports as it goes; a bar counts both parts."""
    lines: list[str] = []
    bars: list[tuple[str, int]] = []

    @contextmanager
    def bar(description: str, total: int) -> Iterator[Advance]:
        bars.append((description, total))
        yield lambda: None

    Squares(ExperimentOptions(seeds=1, workers=1), Watcher(report=lines.append, bars=bar)).run()

    assert lines == ["2 with seed 1", "5 with seed 1", "3 with seed 1"]
    assert bars == [("squares", 1), ("squares", 2)]


def test_a_copy_for_another_process_has_no_watcher() -> None:
    """Those who watch cannot be pickled, and are not needed there."""
    watched = Squares(ExperimentOptions(seeds=2), Watcher(report=lambda line: None))

    copy = pickle.loads(pickle.dumps(watched))  # noqa: S301 - our own

    assert copy.options == watched.options
    assert copy.watcher == Watcher()


def test_a_sequence_is_one_task() -> None:
    """It is run once, whatever the seeds."""
    lines: list[str] = []

    result = quick(Steps, seeds=5, watcher=Watcher(report=lines.append)).run()

    assert (lines, result.seeds, [one.id for one in result.rows]) == (["one step"], 1, ["done"])
    assert not Steps.has_figure()


@pytest.mark.parametrize("one", declared().values(), ids=lambda one: one.about.name)
def test_what_was_read_is_what_is_declared(one: Declared) -> None:
    """Each is found in the source with the very arguments of its decorator; those of papers have figures."""
    kind = one.load()

    assert kind.about == one.about
    assert kind.__doc__
    assert kind.has_figure() or kind.about.paper == LIVE


def test_no_declaration_is_missed() -> None:
    """As many are found as decorators stand in the files."""
    folder = Path(__file__).parents[3] / "experiments"
    decorators = sum(file.read_text().count("\n@experiment(") for file in folder.rglob("*.py"))

    assert len(declared()) == decorators > 40


def test_to_find_them_imports_none() -> None:
    """Somebody who asks for names does not wait for libraries."""
    code = "import sys, tuner.experiments.frame.discovery as d; d.declared(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert not {"numpy", "pydantic", "tuner.experiments.rrl.fig6"} & set(loaded.split())


def test_unknown_experiments_are_named() -> None:
    """The error lists what there is."""
    with pytest.raises(InvalidInput, match="triton-sweep"):
        find("nothing")
