"""How an experiment is declared: a class that says what is measured, and a decorator with its name and title.

An experiment reproduces a table or figure of a paper, or measures something of our own. Its methods say what
there is to measure (``tasks``), how one of these is measured with one seed (``measure``), and what the
answers come to: numbers (``rows``), curves (``series``) and figures (``draw``). This module does what is
the same for all experiments: quick runs, seeds, processes, progress bars, pairing tasks with their answers,
and the stored result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from tuner.experiments.frame.about import About
from tuner.experiments.frame.options import ExperimentOptions, Watcher
from tuner.experiments.frame.result import Result, Row
from tuner.laboratory.parallel import as_answered, run_all
from tuner.laboratory.progress import track
from tuner.report import style
from tuner.report.series import Series

__all__ = ["Answers", "Experiment", "OneTaskExperiment", "Scaled", "SequentialExperiment", "experiment"]

Value = TypeVar("Value")
Task = TypeVar("Task")
Answer = TypeVar("Answer")
Outcome = TypeVar("Outcome")
Answers = dict[Task, list[Answer]]
"""The answers to each task, one for each of its seeds."""


experiment = About
"""The decorator that declares an experiment. Its arguments are literals: they are read without importing the
module."""


class Scaled(Generic[Value]):
    """An attribute of an experiment's class that is smaller in a quick run, such as the number of requests.

    Args:
        full: The value in a usual run.
        quick: The value in a quick run.
    """

    def __init__(self, full: Value, *, quick: Value) -> None:
        self.full = full
        self.quick = quick

    def __get__(self, instance: Experiment[Any, Any] | None, owner: type) -> Value:
        """Return the value for an experiment's options; of the class itself, that of a usual run."""
        return self.quick if instance is not None and instance.options.quick else self.full


class Experiment(ABC, Generic[Task, Answer]):
    """An experiment with its options. It is made for one run, and ``run`` gives its result.

    Args:
        options: How much is measured.
        watcher: Where progress is shown.
    """

    about: ClassVar[About]
    """Set by the decorator."""
    first_seed: ClassVar[int] = 0

    def __init__(self, options: ExperimentOptions, watcher: Watcher | None = None) -> None:
        self.options = options
        self.watcher = watcher or Watcher()
        self.stopped = False
        """Whether Ctrl-C ended it before all seeds were measured."""

    def __reduce__(self) -> tuple[type[Experiment[Task, Answer]], tuple[ExperimentOptions], dict[str, Any]]:
        """Pickle the experiment with what it has prepared; the watcher belongs to this process."""
        kept = {name: value for name, value in vars(self).items() if name != "watcher"}
        return type(self), (self.options,), kept

    @abstractmethod
    def tasks(self) -> Iterable[Task]:
        """Return what to measure: hashable, picklable tasks, of which equal ones are measured once."""

    @abstractmethod
    def measure(self, task: Task, seed: int, /) -> Answer:
        """Measure one task with one seed. The answer must depend on nothing else, and be picklable."""

    @abstractmethod
    def rows(self, found: Answers[Task, Answer], /) -> Iterable[Row]:
        """Return the rows of the result, computed from the answers."""

    def series(self, found: Answers[Task, Answer], /) -> Iterable[Series]:  # noqa: ARG002 - there may be none
        """Return the curves of the result, computed from the answers."""
        return ()

    def configuration(self) -> dict[str, Any]:
        """Return what a reader of the result must know to understand it, as plain values."""
        return {}

    def details(self, found: Answers[Task, Answer], /) -> dict[str, Any]:  # noqa: ARG002 - likewise
        """Return what else is worth storing, as plain values."""
        return {}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:  # noqa: ARG004 - likewise
        """Return the figures that show a result."""
        return []

    @classmethod
    def plot(cls, result: Result, folder: Path, *, form: str = "png") -> list[Path]:
        """Write a result's figures into a folder, ``NAME.png`` or ``NAME-PART.png``; return the files.

        Args:
            result: The result.
            folder: Where they go.
            form: ``png``, ``svg`` or ``pdf``.
        """
        return [
            style.save(
                one.figure,
                folder,
                "-".join(filter(None, (result.experiment, one.part))),
                colors=one.colors,
                form=form,
            )
            for one in cls.draw(result)
        ]

    @classmethod
    def has_figure(cls) -> bool:
        """Return whether there is anything to draw."""
        return cls.draw is not Experiment.draw

    def seeds_of(self, task: Task, /) -> Sequence[int]:  # noqa: ARG002 - most have the same for all
        """Return the seeds that a task is measured with."""
        return range(self.first_seed, self.first_seed + self._seed_count)

    def alone(self, task: Task, /) -> bool:  # noqa: ARG002 - likewise
        """Return whether a task needs the machine to itself.

        Such tasks are measured before the others, one after the other in this process, where they may also
        report their progress.
        """
        return self.about.live

    def prepare(self) -> None:
        """Do once, before any task is measured, what the processes that measure would all do.

        What it sets on the experiment, they have, too.
        """

    def run(self) -> Result:
        """Measure everything and summarise it.

        Ctrl-C ends it with the seeds that are complete: the result is that of a run with so many.

        Raises:
            KeyboardInterrupt: None is complete.
        """
        found = self._measured()
        return Result(
            experiment=self.about.name,
            seeds=self._seed_count,
            configuration=self.configuration(),
            rows=list(self.rows(found)),
            series=list(self.series(found)),
            details=self.details(found),
        )

    def report(self, line: str) -> None:
        """Show a line about the progress."""
        self.watcher.report(line)

    def track(self, items: Iterable[Value], description: str) -> Iterable[Value]:
        """Yield the items while a progress bar counts them."""
        return track(items, description, self.watcher.bars)

    def run_all(
        self, function: Callable[[Value], Outcome], arguments: Sequence[Value], description: str
    ) -> list[Outcome]:
        """Call a function with each argument, spread over processes, while a progress bar counts them."""
        return run_all(function, arguments, description, bars=self.watcher.bars, workers=self.options.workers)

    @property
    def _seed_count(self) -> int:
        return self.options.seeds if self.about.repeated else 1

    def _measured(self) -> Answers[Task, Answer]:
        self.prepare()
        answers: dict[tuple[Task, int], Answer] = {}
        try:
            with closing(self._answers(self._calls())) as found:
                for call, answer in found:
                    answers[call] = answer  # noqa: PERF403 - Ctrl-C must not lose those that have come
        except KeyboardInterrupt:
            self._keep_complete(answers)
        return {task: [answers[task, seed] for seed in self.seeds_of(task)] for task in self.tasks()}

    def _calls(self) -> list[tuple[Task, int]]:
        """Return each task with each of its seeds.

        Seed by seed, so that a machine whose speed drifts is as fast for one task as for the other.
        """
        seeds = {task: self.seeds_of(task) for task in self.tasks()}
        rounds = range(max(map(len, seeds.values()), default=0))
        return [(task, some[n]) for n in rounds for task, some in seeds.items() if n < len(some)]

    def _answers(
        self, calls: Sequence[tuple[Task, int]]
    ) -> Generator[tuple[tuple[Task, int], Answer], None, None]:
        """Yield calls with their answers, as they come; first those that need the machine to themselves."""
        alone = [call for call in calls if self.alone(call[0])]
        spread = [call for call in calls if not self.alone(call[0])]
        for call in self.track(alone, self.about.name) if alone else ():
            yield call, self._answer(call)
        bars, workers = self.watcher.bars, self.options.workers
        found = as_answered(self._answer, spread, self.about.name, bars=bars, workers=workers)
        with closing(found):
            for number, answer in found:
                yield spread[number], answer

    def _keep_complete(self, answers: Mapping[tuple[Task, int], Answer]) -> None:
        """Lower the number of seeds to the largest for which all answers have come.

        Raises:
            KeyboardInterrupt: They have not come for a single one.
        """
        asked = self.options
        for seeds in range(asked.seeds - 1, 0, -1):
            self.options = replace(asked, seeds=seeds)
            if answers.keys() >= set(self._calls()):
                break
        else:
            seeds = 0
        self.options = asked
        self._stop_after(seeds)

    def _stop_after(self, seeds: int) -> None:
        """Go on with so many seeds, which are complete, after Ctrl-C.

        Raises:
            KeyboardInterrupt: None is.
        """
        if not seeds:
            raise KeyboardInterrupt
        self.report(f"stopped: of {self.options.seeds} seeds, {seeds} are complete; they are summarised")
        self.options, self.stopped = replace(self.options, seeds=seeds), True

    def _answer(self, call: tuple[Task, int]) -> Answer:
        return self.measure(*call)


class OneTaskExperiment(Experiment[None, Answer]):
    """An experiment with one task, which is measured with each of its seeds."""

    def tasks(self) -> tuple[None]:
        """Return the one task."""
        return (None,)


class SequentialExperiment(OneTaskExperiment[Answer]):
    """An experiment that is one sequence of steps, each of which needs the machine to itself.

    Ctrl-C loses them all, unless they call `_stop_after` with the seeds that they have complete: what can be
    measured seed by seed is better an :class:`OneTaskExperiment`.
    """

    def seeds_of(self, _: None) -> Sequence[int]:
        """Return one seed: the steps repeat by themselves what needs repeating."""
        return (self.first_seed,)

    def alone(self, _: None) -> bool:
        """Need the machine: the steps run in this process, so that they can report their progress."""
        return True

    def measure(self, _: None, __: int) -> Answer:
        """Take all steps."""
        return self.proceed()

    @abstractmethod
    def proceed(self) -> Answer:
        """Take all steps and return their outcome, the only answer to the only task."""
