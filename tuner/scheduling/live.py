"""Call a policy's compiled functions from Python, one event at a time, in little time.

A policy is a dozen arrays. numba looks up the type of each at every call to choose the compiled function;
here it is chosen once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from tuner._jit import njit_flat
from tuner.scheduling import policy as policies
from tuner.scheduling.vocabulary import OK

__all__ = ["Calls", "calls_of"]


class Calls(NamedTuple):
    """The events of a policy; each returns the number of commands it gave, -1 if the ring is full."""

    arrive: Callable[[int, int, int, float], int]
    finish: Callable[[int, float], int]
    wake: Callable[[float], int]


def calls_of(policy: Any) -> Calls:
    """Return the calls to a policy; they hold on to its arrays of now."""
    index, time = types.int64, types.float64
    return Calls(
        _bound(_arrive, policy, index, index, index, time),
        _bound(_finish, policy, index, time),
        _bound(_wake, policy, time),
    )


def _bound(function: Callable[..., int], policy: Any, *arguments: Any) -> Callable[..., int]:
    """Return a compiled function with its first argument given and the types of the others fixed."""
    if not hasattr(function, "overloads"):  # compilation is switched off
        return partial(function, policy)
    plain = _plain(policy)
    signature = (numba.typeof(plain), *arguments)  # type: ignore[no-untyped-call]
    function.compile(signature)  # type: ignore[attr-defined]
    return partial(function.overloads[signature].entry_point, plain)


def _plain(state: Any) -> Any:
    """Return a policy with its record arrays as plain views of the same memory: they are cheaper to pass."""
    if isinstance(state, np.ndarray):
        return state.view(np.ndarray)
    return state._make(_plain(part) for part in state)


@njit_flat
def _arrive(policy: Any, session: int, source: int, number: int, now: float) -> int:
    if policies.arrive(policy, session, source, number, now) != OK:
        return -1
    return int(policy.cluster.board[0].commands)


@njit_flat
def _finish(policy: Any, accelerator: int, now: float) -> int:
    policies.finish(policy, accelerator, now)
    return int(policy.cluster.board[0].commands)


@njit_flat
def _wake(policy: Any, now: float) -> int:
    policies.wake(policy, now)
    return int(policy.cluster.board[0].commands)
