"""Does one job at a time, in a thread of its own or at once: how training never delays a window."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["Worker"]

log = logging.getLogger(__name__)


class Worker:
    """Does a job whenever it is asked to; requests that come meanwhile are served together afterwards.

    In the background a job that fails is told of in the log, and the next request tries it anew; at once, the
    error is raised.

    Args:
        job: Told how many requests it serves.
        name: Of the thread.
        background: In a thread of its own, which lives as long as there are requests; otherwise inside
            :meth:`request`.

    Attributes:
        background: May be changed between requests.
        closed: Whether the job should come to an end.
    """

    def __init__(self, job: Callable[[int], None], name: str, *, background: bool) -> None:
        self._job = job
        self._name = name
        self.background = background
        self.closed = False
        self._wake = threading.Condition()
        self._pending = 0
        self._working = False
        self._thread: threading.Thread | None = None

    def request(self) -> None:
        """Have the job done; returns at once in the background. Does nothing after :meth:`close`."""
        with self._wake:
            if self.closed:
                return
            if self.background:
                self._pending += 1
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                    self._thread.start()
                return
        self._job(1)

    def wait(self, seconds: float) -> bool:
        """Wait until everything requested is done; False if it is not."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._pending and not self._working, seconds)

    def close(self) -> None:
        """Stop the thread. May be called twice."""
        with self._wake:
            self.closed = True
            thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        """Serve requests until there are none: a process with a thousand agents has few threads that work."""
        while True:
            with self._wake:
                self._working = bool(self._pending) and not self.closed
                if not self._working:
                    self._thread = None
                    self._wake.notify_all()
                    return
                requests, self._pending = self._pending, 0
            try:
                self._job(requests)
            except Exception as error:  # whatever it is, nobody else would hear of it
                log.warning("%s failed, and is tried again after the next window: %s", self._name, error)
