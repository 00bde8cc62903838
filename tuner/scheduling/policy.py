"""The contract of a scheduling policy: it gets the time and an event, changes its state and writes commands.

A policy is a NamedTuple of arrays, whose first field is a :class:`~tuner.scheduling.vocabulary.Cluster`, and
three compiled functions, registered with :func:`register` and called through :func:`arrive`,
:func:`finish` and :func:`wake`, from Python and from compiled code alike. It has no clock, no randomness
and does no I/O. Two drivers run it: the virtual-time engine (:mod:`tuner.cluster.engine`), and a live
dispatcher that calls a :class:`~tuner.scheduling.scheduler.Scheduler`. The policy cannot tell them apart.

Rules
-----
* Time never goes back. Events at one instant come in the order finish, arrive, wake.
* Each event first calls ``begin(cluster, now)``, which forgets the commands of the one before. Afterwards
  the driver carries out ``cluster.commands[:board.commands]`` in order.
* Every request that arrived is in exactly one DISPATCH or DROP sooner or later, oldest of its queue first, or
  newest first where a policy serves so.
* ``board.wake_at`` is when the policy wants ``wake`` if nothing happens before; ``wake`` must move it.
  A policy that ran out of room for commands sets it to now, and goes on then.
* An accelerator executes the batches sent to it one after the other, in the order they were sent; each
  ``finish`` reports the oldest of them. How long one took that was not executed, because nobody waited for it
  any more or the server failed, teaches nothing: the driver writes 1 to ``board.void`` before its ``finish``.
* A request may have a size. The driver writes it to ``board.items`` before ``arrive``; it stays until it is
  overwritten, and is 1 at first. ``push`` keeps it with the request. The policies of
  `scheduling.distribution` use it, the others form batches of requests of one size.
* A request's deadline is its arrival plus its session's SLO, or ``board.early`` before that, which the
  driver writes likewise and which is 0 at first. ``push`` keeps a queue in the order of deadlines.
* ``arrive`` returns FULL without changing anything if the ring of the queue is full; see
  :func:`tuner.scheduling.cluster.grow`.

The choice of functions by type happens when numba compiles a caller, so it costs nothing, everything can be
inlined, and compiled callers are served from the cache (a kernel that is handed to another is not).

A policy of your own works like those here, wherever its class is defined. Only the engine compiled for it is
not cached on disk, because processes that cannot import the class must be able to read the cache
(:mod:`tuner._jit`). So every process that simulates it compiles the engine, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba.extending import overload

__all__ = ["Functions", "arrive", "finish", "is_registered", "register", "wake"]


class Functions(NamedTuple):
    """The compiled functions of one policy; see the functions of the same names below."""

    arrive: Callable[..., int]
    finish: Callable[..., int]
    wake: Callable[..., int]


_FUNCTIONS: dict[type, Functions] = {}


def register(state: type, functions: Functions) -> None:
    """Say which functions belong to a policy's state type."""
    _FUNCTIONS[state] = functions


def is_registered(state: type) -> bool:
    """Whether functions belong to a state type."""
    return state in _FUNCTIONS


def arrive(policy: Any, session: int, source: int, number: int, now: float) -> int:
    """A request of a session arrived.

    Args:
        policy: The state; modified in place.
        session: Its session.
        source: The frontend that received it, 0 if there is one.
        number: The driver's name for it.
        now: s; also its arrival.

    Returns:
        OK, or FULL.
    """
    return _FUNCTIONS[type(policy)].arrive(policy, session, source, number, now)


def finish(policy: Any, accelerator: int, now: float) -> int:
    """The oldest batch outstanding on an accelerator has ended. ``policy`` is modified in place."""
    return _FUNCTIONS[type(policy)].finish(policy, accelerator, now)


def wake(policy: Any, now: float) -> int:
    """The time ``board.wake_at`` has come. ``policy`` is modified in place."""
    return _FUNCTIONS[type(policy)].wake(policy, now)


# Without reference counting, and taken in by the caller: counting and copying the arrays cost 200 ns.
_JIT: Any = {"nopython": True, "_nrt": False, "forceinline": True}


@overload(arrive, jit_options=_JIT)
def _arrive(policy: Any, session: Any, source: Any, number: Any, now: Any) -> Any:  # noqa: ARG001 - numba matches by name
    function = _FUNCTIONS[policy.instance_class].arrive

    def call(policy: Any, session: Any, source: Any, number: Any, now: Any) -> Any:
        return function(policy, session, source, number, now)

    return call


@overload(finish, jit_options=_JIT)
def _finish(policy: Any, accelerator: Any, now: Any) -> Any:  # noqa: ARG001 - numba matches by name
    function = _FUNCTIONS[policy.instance_class].finish

    def call(policy: Any, accelerator: Any, now: Any) -> Any:
        return function(policy, accelerator, now)

    return call


@overload(wake, jit_options=_JIT)
def _wake(policy: Any, now: Any) -> Any:  # noqa: ARG001 - numba matches by name
    function = _FUNCTIONS[policy.instance_class].wake

    def call(policy: Any, now: Any) -> Any:
        return function(policy, now)

    return call
