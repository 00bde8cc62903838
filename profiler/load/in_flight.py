"""A knob of our own clients beside those of a server: how many of their requests are in flight.

Request parallelism is the clients' share of a server's batching: what is not in flight cannot join a batch,
and what is waits in the server's queue rather than in ours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tuner.adapters.backend import ApplyReport, Backend, Counters, Description
from tuner.adapters.deployment import deployed_anew
from tuner.adapters.replicas.canary import Canary, CanaryTrial
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Configuration, Knob, KnobSpace
from tuner.profile import BatchingProfile

if TYPE_CHECKING:
    from tuner.profiler.load.generator import LoadGenerator

__all__ = ["IN_FLIGHT", "Group", "GroupWithInFlight", "WithInFlight", "check_grid"]

IN_FLIGHT = "max_in_flight"
"""The knob's name."""


def check_grid(grid: tuple[float, ...]) -> None:
    """Check the grid of the knob.

    Raises:
        InvalidInput: A value is no number of requests.
    """
    for value in grid:
        if value < 1 or not value.is_integer():
            raise InvalidInput(f"knob {IN_FLIGHT}", f"{value:g} is no number of requests", "write 4,8,16")


class WithInFlight:
    """A backend with the knob of our own clients; everything else is the backend's own.

    Args:
        backend: The server.
        load: The clients.
        grid: Numbers of requests; the largest is what the clients begin with.
    """

    def __init__(self, backend: Backend, load: LoadGenerator, grid: tuple[float, ...]) -> None:
        check_grid(grid)
        self._knob = knob = Knob(
            name=IN_FLIGHT, grid=grid, default=grid[-1], apply_cost=ApplyCost.FREE, of_clients=True
        )
        self.space = KnobSpace([*backend.space.knobs, knob], fixed=backend.space.fixed)
        load.set_in_flight(int(knob.default))
        self._backend = backend
        self._found = backend.current()
        self._load = load

    def describe(self) -> Description:
        """Return who the server is."""
        return self._backend.describe()

    @property
    def deployed_anew(self) -> str:
        """How the server's model differs from the one that was opened; empty if nobody knows."""
        return deployed_anew(self._backend)

    def counters(self) -> Counters:
        """Read the server's totals."""
        return self._backend.counters()

    def profile(self) -> BatchingProfile | None:
        """Return the server's l(b)."""
        return self._backend.profile()

    def close(self) -> None:
        """Close the server's connections."""
        self._backend.close()

    def current(self) -> Configuration:
        """Read what the server runs, and add the clients' limit."""
        return self._with(self._backend.current())

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change the server, then the clients: if the server refuses, they stay as they are."""
        if IN_FLIGHT not in configuration:
            raise InvalidInput(f"knob {IN_FLIGHT}", "missing", "give each knob a value")
        begun = time.monotonic()
        wanted = configuration[IN_FLIGHT]
        if not math.isfinite(wanted):
            raise InvalidInput(f"knob {IN_FLIGHT}", f"{wanted} is no number of requests")
        check_grid((wanted,))
        report = self._backend.apply(_of_servers(configuration))
        if wanted == self._load.in_flight:
            return replace(report, configuration=self._with(report.configuration))
        self._load.set_in_flight(int(wanted))
        return replace(report, configuration=self.current(), changed=True, seconds=time.monotonic() - begun)

    def take_up(self, configuration: Mapping[str, float]) -> None:
        """Have the clients go on with the limit of an earlier process, or the nearest of the grid."""
        if (most := configuration.get(IN_FLIGHT)) is not None:
            self._load.set_in_flight(int(self._knob.nearest(most)))

    def restore(self) -> None:
        """Put back what the server ran; the clients end with us."""
        restore = getattr(self._backend, "restore", partial(self._backend.apply, self._found))
        restore()

    def _with(self, configuration: Configuration) -> Configuration:
        return Configuration({**configuration, IN_FLIGHT: float(self._load.in_flight)})


@runtime_checkable
class Group(Backend, Canary, Protocol):
    """A backend of several servers that can try a configuration on one of them."""

    @property
    def replicas(self) -> int:
        """How many of them answered when they were last asked."""
        ...

    @property
    def turnover(self) -> int:
        """How often one of them came or went."""
        ...


class GroupWithInFlight(WithInFlight):
    """Several servers with the knob of our own clients, which all of them share.

    Args:
        backend: The servers.
        load: The clients.
        grid: Numbers of requests; the largest is what the clients begin with.
    """

    def __init__(self, backend: Group, load: LoadGenerator, grid: tuple[float, ...]) -> None:
        super().__init__(backend, load, grid)
        self._group = backend

    @property
    def replicas(self) -> int:
        """How many of the servers answered when they were last asked."""
        return self._group.replicas

    @property
    def turnover(self) -> int:
        """How often one of the servers came or went."""
        return self._group.turnover

    def configurations(self) -> list[Configuration]:
        """Return what each server runs, with the clients' limit."""
        return [self._with(configuration) for configuration in self._group.configurations()]

    def try_one(self, configuration: Configuration, wait: Callable[[float], None]) -> CanaryTrial | None:
        """Try the servers' knobs on one server; None also if only the clients' limit is to change."""
        wanted = _of_servers(configuration)
        if all(self._group.space.same(running, wanted) for running in self._group.configurations()):
            return None
        return self._group.try_one(wanted, wait)

    def take_back(self) -> None:
        """Put back what the server ran that tried a configuration."""
        self._group.take_back()


def _of_servers(configuration: Configuration) -> Configuration:
    """Return a configuration without the clients' limit."""
    return Configuration({name: value for name, value in configuration.items() if name != IN_FLIGHT})
