"""Integer programs through scipy's solver, HiGHS, which may not write among our own output.

Now and then HiGHS prints a line for its developers, from C and whatever it was told about printing. Who reads
what a command wrote, a plan as JSON perhaps, must not find it there.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["solve_integer"]

STDOUT = 1
"""The file that C writes to."""


def solve_integer(
    cost: np.ndarray,
    *,
    integrality: np.ndarray,
    bounds: Any,
    constraints: Any,
    options: Mapping[str, float],
) -> Any:
    """Minimise ``cost @ x``; see `scipy.optimize.milp`, whose arguments these are.

    While it solves, nothing of this process reaches its standard output: for commands, not for servers.

    Args:
        cost: Of each variable.   # (n,)
        integrality: 1 where a variable is an integer.   # (n,)
        bounds: A `scipy.optimize.Bounds`.
        constraints: One `scipy.optimize.LinearConstraint`, or a sequence of them.
        options: `time_limit` in seconds, and `mip_rel_gap`.

    Returns:
        scipy's `OptimizeResult`.
    """
    from scipy.optimize import milp

    with _silent_stdout():
        return milp(
            cost, integrality=integrality, bounds=bounds, constraints=constraints, options=dict(options)
        )


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Send what is written to standard output, by C as well, to nowhere."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STDOUT)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what C still holds back would come out later
        os.dup2(kept, STDOUT)
        os.close(kept)
        os.close(nowhere)
