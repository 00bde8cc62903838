"""Work is spread over processes and comes back in order, and progress bars count it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psutil
import pytest

from tests.waiting import LONGEST
from tuner.cli.console import make_console, progress_bars
from tuner.errors import TunerError
from tuner.laboratory.parallel import as_answered, cores, run_all
from tuner.laboratory.progress import track


class Bars:
    """Notes what progress bars showed."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, int, int]] = []

    @contextmanager
    def __call__(self, description: str, total: int) -> Iterator[Callable[[], None]]:
        done = [0]

        def advance() -> None:
            done[0] += 1

        yield advance
        self.shown.append((description, done[0], total))


def test_progress_counts_what_is_done() -> None:
    """One step for each item, and the items come through unchanged."""
    bars = Bars()

    items = list(track([3, 1, 2], "points", bars))

    assert items == [3, 1, 2]
    assert bars.shown == [("points", 3, 3)]


def test_progress_of_something_without_a_length() -> None:
    """The total must be said."""
    bars = Bars()

    assert list(track(iter("ab"), "letters", bars, total=2)) == ["a", "b"]
    assert bars.shown == [("letters", 2, 2)]
    with pytest.raises(AssertionError, match="total"):
        next(track(iter("ab"), "letters"))


def test_progress_on_the_terminal_can_be_nested(capsys: pytest.CaptureFixture[str]) -> None:
    """A bar inside a bar works, and one after the other."""
    bars = progress_bars(make_console())

    for _ in range(2):
        with bars("outer", 1) as outer, bars("inner", 1) as inner:
            inner()
            outer()

    assert "Traceback" not in capsys.readouterr().out


@pytest.mark.parametrize("workers", [1, 2])
def test_answers_come_in_the_order_of_the_tasks(workers: int) -> None:
    """However many processes there are, the answers are the same."""
    bars = Bars()

    answers = run_all(math.factorial, [5, 3, 4], "numbers", bars=bars, workers=workers)

    assert answers == [120, 6, 24]
    assert bars.shown == [("numbers", 3, 3)]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_task_is_raised_and_leaves_no_process(workers: int) -> None:
    """The caller sees the task's own error."""
    with pytest.raises(ValueError, match="factorial"):
        run_all(math.factorial, [5, -1, 4], workers=workers)

    assert not [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]


def test_a_worker_that_is_killed_is_a_clear_error() -> None:
    """As the kernel does where there is no memory left; `tuner compare` ended in a traceback."""
    with pytest.raises(TunerError, match="was it killed"):
        run_all(os._exit, [3, 3], workers=2)


def test_workers_end_with_their_parent() -> None:
    """Of a training that was killed they went on writing the journals, and the same command was refused."""
    script = (
        "import multiprocessing, time\n"
        "from tuner.laboratory.parallel import as_answered\n"
        "answers = as_answered(time.sleep, [0, 600, 600], workers=2)\n"
        "next(answers)\n"
        "print(*(worker.pid for worker in multiprocessing.active_children()), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        workers = [psutil.Process(int(worker)) for worker in parent.stdout.readline().split()]
        parent.kill()
    _, alive = psutil.wait_procs(workers, timeout=LONGEST)
    for worker in alive:
        worker.kill()

    assert (len(workers), alive) == (2, [])


def test_who_needs_no_more_answers_leaves_no_process() -> None:
    """To close the generator ends the workers; those who know enough need not wait."""
    with closing(as_answered(math.factorial, range(100), workers=2)) as found:
        place, answer = next(found)

    assert answer == math.factorial(place)
    assert not [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]


def test_nothing_to_do() -> None:
    """No tasks, no answers, no processes."""
    assert run_all(math.factorial, [], workers=4) == []
    assert cores() >= 1
