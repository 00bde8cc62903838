"""How many files this process may have open: gRPC ends a process in which no further connection has room."""

from __future__ import annotations

import resource
from contextlib import suppress

__all__ = ["MOST_OPEN", "limit", "raise_limit"]

MOST_OPEN = 65_536
"""Files that a process of ours asks for at most."""


def raise_limit() -> None:
    """Let this process open as many files as it may have without rights, up to `MOST_OPEN`.

    Shells, systemd and many containers set 1,024 and allow far more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # a sandbox, or macOS with its own bound: we go on with fewer
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN if soft == resource.RLIM_INFINITY else soft
