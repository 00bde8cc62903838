"""What the operator reads of servers that come and go."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

__all__ = ["MANY", "WINDOW", "News", "unfailing"]

MANY = 4
"""Sentences about a server that are said at once, in a window."""
WINDOW = 10.0
"""s; of a server that comes and goes more often, one sentence is said in each."""
_log = logging.getLogger(__name__)


def unfailing(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return what says a sentence, or logs it where nobody reads any more or the disk is full."""

    def said(sentence: str) -> None:
        try:
            say(sentence)
        except (OSError, ValueError) as error:  # the second: it is closed, or cannot encode a letter
            _log.warning("%s (this could not be printed: %s)", sentence, error)

    return said


class News:
    """Says that a server comes and goes. One that does so all the time does not fill the log.

    Args:
        say: Receives a sentence; does not raise.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: deque[float] = deque(maxlen=MANY)  # when the last sentences were said, s
        self._last = ""
        self._held = 0  # sentences that were not said, with the last one

    def tell(self, sentence: str, now: float) -> None:
        """Say a sentence, or hold it back if too many were said; ``now`` in s."""
        self._last = sentence
        self._held += 1
        self.catch_up(now)

    def catch_up(self, now: float) -> None:
        """Say the last sentence that was held back, once it is time, and how many there were before it."""
        if not self._held or (len(self._said) == MANY and now < self._said[0] + WINDOW):
            return
        left_out, self._held = self._held - 1, 0
        self._said.extend([now] * (MANY if left_out else 1))
        more = f" ({left_out} changes of this backend before it were not printed)" if left_out else ""
        self._say(self._last + more)
