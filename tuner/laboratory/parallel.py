"""Runs one function on many arguments in several processes, such as the runs of a comparison."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import TypeVar

from tuner.errors import TunerError
from tuner.laboratory.progress import Bars, no_bars, track

__all__ = ["as_answered", "cores", "run_all"]

Task = TypeVar("Task")
Answer = TypeVar("Answer")
KILLED = (
    "a process has ended before its answer; was it killed, as for want of memory? "
    "With fewer cores (`taskset -c 0,1 ...`) fewer of them run at once"
)


def cores() -> int:
    """Return how many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every platform
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def run_all(
    function: Callable[[Task], Answer],
    tasks: Sequence[Task],
    description: str = "points",
    *,
    bars: Bars = no_bars,
    workers: int | None = None,
) -> list[Answer]:
    """Return the answers to all tasks, in their order; see :func:`as_answered`."""
    with closing(as_answered(function, tasks, description, bars=bars, workers=workers)) as found:
        answers = dict(found)
    return [answers[number] for number in range(len(tasks))]


def as_answered(
    function: Callable[[Task], Answer],
    tasks: Sequence[Task],
    description: str = "points",
    *,
    bars: Bars = no_bars,
    workers: int | None = None,
) -> Generator[tuple[int, Answer], None, None]:
    """Yield the place of each task and its answer, as they come; a progress bar counts them.

    Each worker is a fresh process, so that no state leaks from the caller: an answer depends on its task
    alone, and the same task gives the same answer whatever the number of workers. An error in a task, or
    Ctrl-C, ends the workers at once and is raised. To close the generator ends them, too, and so does the end
    of this process, however it ends.

    Args:
        function: A function of a module (not a lambda), whose argument and answer can be pickled.
        tasks: Its arguments.
        description: Stands beside the bar.
        bars: Opens the bar.
        workers: How many processes there may be; one for each core if None. With one, everything runs in
            this process.

    Raises:
        TunerError: A worker was killed.
    """
    workers = min(cores() if workers is None else workers, len(tasks))
    if workers <= 1:
        for number, task in enumerate(track(tasks, description, bars)):
            yield number, function(task)
        return
    others = set(active_children())
    # "spawn" rather than "fork": the parent may have threads, and a forked copy of their locks hangs.
    executor = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)
    try:
        with bars(description, len(tasks)) as advance:
            futures = {executor.submit(function, task): number for number, task in enumerate(tasks)}
            for future in as_completed(futures):
                yield futures[future], future.result()
                advance()
    except BaseException as error:
        for worker in set(active_children()) - others:
            worker.terminate()
        # The executor waits for them itself; if we did, too, one of the two would never learn of their end.
        executor.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise TunerError(KILLED) from error
        raise
    executor.shutdown()


def _begin() -> None:
    """Ctrl-C reaches every process of the terminal; the parent is the one to act on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End once the parent is gone: one that is killed tells nobody, and a worker would wait for ever."""
    parent = parent_process()
    assert parent is not None, "a worker has one"
    parent.join()
    os._exit(1)
