"""A running dispatcher as a backend: its knobs cost nothing to change.

| knob | means |
|---|---|
| ``policy`` | its place in the dispatcher's list of policies: symphony, eager, ... |
| those of `tuner.scheduling.knobs` | how symphony schedules |

``SESSION.max_batch`` and ``SESSION.queue``, the limits of one session, are knobs where a grid is given for
them. Requests that are refused count as failures, those that were answered as requests.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.connection.host import listening_processes
from tuner.adapters.dispatch.client import DispatchClient, DispatchTarget, parse_target
from tuner.adapters.dispatch.flow import traffic_between
from tuner.adapters.live.knobs import KnobKind, check, containing
from tuner.adapters.metrics.histogram import Histogram
from tuner.adapters.metrics.totals import Key, MonotonicTotals, Reading
from tuner.adapters.traffic import Traffic
from tuner.errors import InvalidInput, Unreachable
from tuner.knobs import ApplyCost, Configuration, Grids, Knob, KnobSpace
from tuner.planning.autoscale import ScalingAdvice
from tuner.printable import one_line
from tuner.profile import BatchingProfile, fit_profile
from tuner.scheduling.knobs import DROP_RULES, KNOBS, ORDERS

__all__ = ["DispatchBackend", "connect"]

SETTLE = 0.5
"""s for which requests that were planned before a change go on to be answered."""
UNIT = 1e-9
"""s: durations are counted in whole nanoseconds, which never fall by rounding."""
CHOICES = {"policy": 5, "drop_rule": len(DROP_RULES), "dispatch_order": len(ORDERS), "target_batch": 2}
"""How many values a knob has that stands for one of several things."""
UNKNOWN_FORM = "the dispatcher answers in an unknown form; is it of another version?"
NO_KNOBS = "its policy has no knobs, those of symphony do nothing"
GIVE_LIMITS = "give limits of its sessions a grid, such as --knob SESSION.max_batch=4,8,16"
LIMITS = {"max_batch": 1024, "queue": 1_000_000}
"""The largest value of a session's limit."""


class DispatchBackend:
    """A dispatcher; :class:`~tuner.adapters.backend.Backend` says what callers may rely on.

    Args:
        target: As the user wrote it.
        grids: Grids in place of the default ones, by knob name, and of further knobs.
        timeout: Longest wait for an answer, s.

    Raises:
        InvalidInput: The target or a grid cannot be used.
        Unreachable: No dispatcher answers.
    """

    def __init__(self, target: str, grids: Grids | None = None, *, timeout: float = 5.0) -> None:
        self._target: DispatchTarget = parse_target(target)
        self._client = DispatchClient(self._target, timeout)
        state = self._client.state()
        self._found = _knobs(state)
        self._space = _space(self._found, grids or {})
        self._original = Configuration({name: self._found[name] for name in self._space.names})
        self._bounds = np.array([*state["bounds"], np.inf])
        self._told = self._last = state  # the traffic up to `_told` was asked for
        self._totals = MonotonicTotals({"all": _reading(state)})

    @property
    def space(self) -> KnobSpace:
        """The knobs that can be turned, and their grids."""
        return self._space

    def describe(self) -> Description:
        """Return who this is and what it can do."""
        state, token = self._client.state(), self._target.token_file
        away = [
            f"backend {one['address']} is down: {one['reason']}" for one in state["backends"] if not one["up"]
        ]
        notes = [] if token is not None else ["it takes no changes without token_file= in the target"]
        if "policy" not in state["knobs"]:
            limited = any("." in name for name in self._space.names)
            notes.append(NO_KNOBS if limited else f"{NO_KNOBS}; {GIVE_LIMITS}")
        return Description(
            target=self._target.url,
            server=str(state["server"]),
            version=str(state["version"]),
            model=", ".join(str(session["name"]) for session in state["sessions"]),
            writable=token is not None,
            quantiles=True,
            processes=listening_processes(self._target.host, self._target.port),
            counts_by_process=True,
            notes=(*notes, *away),
            without_knobs=() if "policy" in state["knobs"] else (GIVE_LIMITS,),
        )

    def current(self) -> Configuration:
        """Read what the dispatcher runs with.

        Raises:
            AdapterError: It cannot be asked, or has no longer all the knobs that it had.
        """
        found = _knobs(self._client.state())
        if gone := [name for name in self._space.names if name not in found]:
            raise Unreachable(f"the dispatcher has no {', '.join(gone)} any more; was its file changed?")
        return Configuration({name: found[name] for name in self._space.names})

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Set the knobs, verified by reading back. What runs may be nothing that they could be set to."""
        begun = time.monotonic()
        self._space.check_complete(configuration)
        if self.current() == configuration:
            return ApplyReport.unchanged(configuration, seconds=time.monotonic() - begun)
        check(self._space, configuration, _kind_of)
        return self._set(configuration, begun)

    def restore(self) -> ApplyReport:
        """Put back what was found at opening, also a value that `apply` would not set.

        Raises:
            AdapterError: It cannot be asked, takes no changes, or cannot use the values any more.
        """
        begun = time.monotonic()
        if self.current() == self._original:
            return ApplyReport.unchanged(self._original, seconds=time.monotonic() - begun)
        return self._set(self._original, begun)

    def _set(self, configuration: Configuration, begun: float) -> ApplyReport:
        self._client.set(configuration)
        return ApplyReport(
            configuration=self.current(),
            changed=True,
            cost=ApplyCost.FREE,
            seconds=time.monotonic() - begun,
            settle=SETTLE,
            affected=0.0,
        )

    def _sums(self) -> Counter[Key]:
        """Read the totals since opening."""
        state = self._client.state()
        self._totals.add({"all": _reading(state)})
        self._last = state
        return self._totals.sums()

    def counters(self) -> Counters:
        """Read the totals."""
        sums = self._sums()
        counts, seconds = self._batches(sums)
        latency, compute = sums["latency", 0] * UNIT, sums["compute", 0] * UNIT
        buckets = [sums["bucket", place] for place in range(self._bounds.size)]
        return Counters(
            time=time.monotonic(),
            requests=sums["requests", 0],
            failures=sums["failures", 0],
            latency=latency,
            queue=max(latency - compute, 0.0),
            compute=min(compute, latency),
            inferences=sums["inferences", 0],
            batch_counts=counts,
            batch_seconds=seconds,
            latencies=Histogram(self._bounds, np.array(buckets, np.int64)),
            restarts=self._totals.restarts,
        )

    def _batches(self, sums: Counter[Key]) -> tuple[np.ndarray, np.ndarray]:
        """Return executions by batch size, and the seconds in them.   # (B+1,), (B+1,) s."""
        largest = max((size for name, size in sums if name == "batches"), default=0)
        counts = np.array([sums["batches", size] for size in range(largest + 1)], np.int64)
        return counts, np.array([sums["seconds", size] * UNIT for size in range(largest + 1)])

    def scaling(self) -> Mapping[str, ScalingAdvice]:
        """Return the dispatcher's own advice for each pool; one of an earlier version gives none."""
        pools = self._client.state().get("pools", {})
        try:
            return {
                str(name): ScalingAdvice(
                    accelerators=int(one["instances"]),
                    desired=int(one["desired"]),
                    reason=one_line(str(one["reason"])),
                )
                for name, one in pools.items()
            }
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise Unreachable(UNKNOWN_FORM) from error

    def profile(self) -> BatchingProfile | None:
        """Return l(b) over all sessions and everything seen since opening."""
        return fit_profile(*self._batches(self._sums()))

    def traffic(self) -> Traffic | None:
        """See :class:`~tuner.adapters.traffic.TrafficSource`."""
        told, self._told = self._told, self._last
        try:
            return traffic_between(told, self._last)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise Unreachable(UNKNOWN_FORM) from error

    def close(self) -> None:
        """Nothing is held open."""


connect = DispatchBackend


def _knobs(state: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of the knobs in a dispatcher's state.

    Raises:
        Unreachable: They do not have the form of a dispatcher's.
    """
    try:
        return {str(name): float(value) for name, value in state["knobs"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreachable(UNKNOWN_FORM) from error


def _reading(state: Mapping[str, Any]) -> Reading:
    """Return a dispatcher's totals as whole numbers.

    Raises:
        Unreachable: They do not have the form of a dispatcher's.
    """
    try:
        totals = state["totals"]
        found: dict[Key, int] = {
            (name, 0): int(totals[name]) for name in ("requests", "failures", "inferences")
        }
        for name in ("latency", "compute"):
            found[name, 0] = int(float(totals[name]) / UNIT)
        for size, count in enumerate(totals["batch_counts"]):
            found["batches", size] = int(count)
        for size, seconds in enumerate(totals["batch_seconds"]):
            found["seconds", size] = int(float(seconds) / UNIT)
        for place, count in enumerate(totals["latencies"]):
            found["bucket", place] = int(count)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unreachable(UNKNOWN_FORM) from error
    return found


def _space(found: Mapping[str, float], grids: Grids) -> KnobSpace:
    """Return the knobs: those of the scheduler, whose grids contain what runs, and those that have a grid.

    Where the policy is none of those that the knob `policy` chooses, the scheduler's do nothing: they stay as
    they are, and are left out if the limit of a session has a grid.

    Raises:
        InvalidInput: A grid is for a knob that is unknown, or does nothing, or has a value of no use.
    """
    own: dict[str, Knob] = {}
    count = "policy" in found
    scheduler = (_policy(), *KNOBS) if count else () if grids else KNOBS
    for knob in scheduler:
        running = found[knob.name]
        grid = containing(knob.grid, running, _kind_of(knob.name)) if count else (running,)
        default = running if running in grid else knob.default
        own[knob.name] = replace(knob, grid=grid, default=default, idle_when=None, idle_value=0.0)
    for name, grid in grids.items():
        if name not in found:
            raise InvalidInput(f"knob {name}", "unknown", f"the knobs are {', '.join(found)}")
        if not count and "." not in name:
            raise InvalidInput(f"knob {name}", "does nothing under the dispatcher's policy", GIVE_LIMITS)
        knob = _kind_of(name).knob(name, grid)
        role = own[name].role if name in own else knob.role
        own[name] = replace(knob, role=role)
    return KnobSpace(list(own.values()))


def _policy() -> Knob:
    return Knob(name="policy", grid=(0.0, 1.0), default=0.0, apply_cost=ApplyCost.FREE)


def _kind_of(name: str) -> KnobKind:
    _, dot, limit = name.rpartition(".")
    if dot:
        return KnobKind(least=1, most=LIMITS[limit], apply_cost=ApplyCost.FREE)
    if name == "deferral":
        return KnobKind(least=0, most=1, whole=False, apply_cost=ApplyCost.FREE)
    return KnobKind(least=0, most=CHOICES.get(name, 1025) - 1, apply_cost=ApplyCost.FREE)
