"""The daemon with a time of day that can be set wrong; run as a module, with its file as argument.

The seconds in ``FILE.clock``, if there is such a file, are added to the time of day, as when an operator or a
time server sets it. The monotonic clock goes on, as it does then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from tuner.control.service import run_daemon

__all__ = ["jumping"]


def jumping(path: Path) -> Callable[[], float]:
    """Return a time of day that is as wrong as a file says."""

    def now() -> float:
        try:
            return time.time() + float(path.read_text())
        except (OSError, ValueError):
            return time.time()

    return now


if __name__ == "__main__":
    run_daemon(Path(sys.argv[1]), now=jumping(Path(f"{sys.argv[1]}.clock")))
