"""Spreads the points and seeds of an experiment over processes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from typing import TypeVar

from tuner.experiments.options import Options

__all__ = ["run_all"]

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def run_all(
    function: Callable[[Task], Answer], tasks: Sequence[Task], options: Options, description: str = "points"
) -> list[Answer]:
    """Return the answers to all tasks, in their order; a progress bar counts those that are done.

    Each worker is a fresh process, so that no state leaks from the caller: an answer depends on its task
    alone, and the same task gives the same answer whatever the number of workers. An error in a task, or
    Ctrl-C, ends the workers at once and is raised.

    Args:
        function: A function of a module (not a lambda), whose argument and answer can be pickled.
        tasks: Its arguments.
        options: How many workers there may be, and who watches. With one, everything runs right here.
        description: Beside the bar.
    """
    workers = min(options.workers, len(tasks))
    if workers <= 1:
        return [function(task) for task in options.track(tasks, description)]
    others = set(active_children())
    # "spawn" rather than "fork": the parent may have threads, and a forked copy of their locks hangs.
    executor = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)
    answers: dict[int, Answer] = {}
    try:
        with options.bars(description, len(tasks)) as advance:
            futures = {executor.submit(function, task): number for number, task in enumerate(tasks)}
            for future in as_completed(futures):
                answers[futures[future]] = future.result()
                advance()
    except BaseException:
        for worker in set(active_children()) - others:
            worker.terminate()
        # The executor waits for them itself; if we did, too, one of the two would never learn of their end.
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()
    return [answers[number] for number in range(len(tasks))]


def _begin() -> None:
    """Ctrl-C reaches every process of the terminal; the parent is the one to act on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
