"""Trains an agent in a thread of its own, so that training never delays a window; or at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import copy_context

__all__ = ["Trainer"]

log = logging.getLogger(__name__)


class Trainer:
    """Runs a training job on request. Requests that come while it runs are served by one further run.

    Life: :meth:`request` after every window, :meth:`close` in the end. In the background a job that fails is
    logged, and the next request tries again; otherwise :meth:`request` raises the error.

    Args:
        job: Trains; its argument is the number of requests that it serves.
        name: Of the thread.
        background: Run the job in a thread, which lives as long as there are requests; otherwise inside
            :meth:`request`, as simulation and tests need it: the same seed then gives the same decisions.

    Attributes:
        background: May change between requests.
        closed: Whether the job should stop early.
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
        """Run the job; in the background return at once. Does nothing after :meth:`close`."""
        with self._wake:
            if self.closed:
                return
            if self.background:
                self._pending += 1
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=copy_context().run, args=(self._work,), name=self._name, daemon=True
                    )
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
        """Serve requests until there are none, then end the thread: a thousand agents need few threads."""
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
            except Exception as error:  # of any kind: nobody waits for the thread who could handle it
                log.warning("%s failed, and is tried again after the next window: %s", self._name, error)
