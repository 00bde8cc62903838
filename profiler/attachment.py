"""Attaches to a target: backend, profiler, clock, machine, and a load of our own if one is wanted.

The one place that knows that a simulated target brings its own time, machine and clients, while a live
one is watched by the wall clock and this machine's process table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tuner.adapters import Backend, Description, connect
from tuner.adapters.connection.endpoint import Loadable
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import Measurement
from tuner.profiler.clock import WallClock
from tuner.profiler.indicator import make_indicator
from tuner.profiler.profiler import Profiler
from tuner.profiler.source import Clients, ClientSample, Clock, Host, HostReading, Indicator
from tuner.setting import FOREIGN_LIMIT, Grids, Load, Setting

if TYPE_CHECKING:
    from tuner.profiler.load.generator import LoadGenerator

__all__ = ["Attachment", "Simulated", "attach", "attach_for", "require_resource"]

TIMEOUT = 30.0
"""When a request of our own counts as lost, s: long enough for an overloaded server to catch up."""
LONGEST_DRAIN = 30.0
"""How long an overloaded server may take to answer what was queued, s."""
DRAINED = 0.050
"""Mean queueing time below which nothing is left over, s."""


@runtime_checkable
class Simulated(Protocol):
    """A backend that is its own clock, machine and clients."""

    @property
    def cores(self) -> float:
        """CPU cores of the simulated machine."""
        ...

    def now(self) -> float:
        """Virtual seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        ...

    def sample(self, start: float, end: float) -> ClientSample:
        """Return the requests sent in ``[start, end)``."""
        ...

    def read(self) -> HostReading:
        """Read processor times."""
        ...

    def set_rate(self, rate: float) -> None:
        """Offer another load from now on, requests/s."""
        ...

    @property
    def rate(self) -> float:
        """The load offered now, requests/s."""
        ...


@runtime_checkable
class _Restorable(Protocol):
    def restore(self) -> object:
        """Put back the whole configuration that was found at opening."""
        ...


@dataclass(kw_only=True)
class Attachment:
    """Everything that is needed to watch a target, and to load it if wanted."""

    backend: Backend
    description: Description
    profiler: Profiler
    clock: Clock
    host: Host
    clients: Clients | None
    """Who times requests; None if only the server's own figures are to be had."""
    load: LoadGenerator | Simulated | None
    """The load of our own; None if the server's own traffic is watched."""
    original: Configuration
    """What the server ran when we came."""
    indicator: Indicator | None = None
    """Who else tells the latency."""

    @property
    def space(self) -> KnobSpace:
        """The knobs."""
        return self.backend.space

    @property
    def grids(self) -> dict[str, tuple[float, ...]]:
        """The knobs' grids by name."""
        return {knob.name: knob.grid for knob in self.space.knobs}

    @property
    def rate(self) -> float:
        """The rate of our own load, requests/s; NaN if there is none, or it has no single rate."""
        if isinstance(self.load, Simulated):
            return self.load.rate
        return float(getattr(self.load.arrival, "rate", math.nan)) if self.load is not None else math.nan

    def set_rate(self, rate: float) -> None:
        """Change our own load, requests/s.

        Raises:
            InvalidInput: There is no load of our own, or its arrival process has a schedule.
        """
        if self.load is None:
            raise InvalidInput("--rate", "missing", "only a load of our own can be changed")
        self.load.set_rate(rate)

    def drain(self, rate: float) -> None:
        """Offer a light load until an overloaded server has answered what was queued, 30 s at most.

        Raises:
            InvalidInput: There is no load of our own.
            AdapterError: The server cannot be asked.
        """
        self.set_rate(rate)
        deadline = self.clock.now() + LONGEST_DRAIN
        while self.clock.now() < deadline:
            if not self.profiler.measure(0.5).queue_mean > DRAINED:
                return

    def watch(self, interval: float) -> Iterator[Measurement]:
        """Measure one interval after the other without end."""
        return self.profiler.watch(interval)

    def restore(self) -> None:
        """Put back what the server ran when we came.

        Raises:
            AdapterError: The server cannot be reached or refuses.
        """
        if isinstance(self.backend, _Restorable):
            self.backend.restore()
        else:
            self.backend.apply(self.original)

    def request_totals(self, measurements: Iterable[Measurement | None]) -> tuple[int, int]:
        """Return failed and sent requests: of our own load if there is one, else of the windows given."""
        if self.load is not None and not isinstance(self.load, Simulated):
            totals = self.load.totals()
            return totals.failed, totals.sent
        seen = [m for m in measurements if m is not None]
        failed = sum(m.failures for m in seen)
        return failed, failed + sum(m.requests for m in seen)


def attach_for(
    setting: Setting, target: str, *, seed: int = 0, clock: Clock | None = None
) -> AbstractContextManager[Attachment]:
    """Attach to a target that is tuned toward something; see :func:`attach`.

    Raises:
        InvalidInput: A value of the setting means nothing for this target.
        StorageError: The token for the service-level indicator cannot be read.
        AdapterError: The server cannot be reached.
    """
    return attach(
        target,
        grids=setting.grids,
        load=setting.load,
        seed=seed,
        foreign_limit=setting.foreign_limit,
        clock=clock,
        indicator=make_indicator(setting.sli, setting.objective.slo.statistic),
    )


@contextmanager
def attach(
    target: str,
    *,
    grids: Grids | None = None,
    load: Load | None = None,
    seed: int = 0,
    foreign_limit: float = FOREIGN_LIMIT,
    clock: Clock | None = None,
    indicator: Indicator | None = None,
) -> Iterator[Attachment]:
    """Attach to a target for the length of a block; nothing is changed by attaching or letting go.

    Args:
        target: Such as ``triton://127.0.0.1:8001/mlp?metrics=8002`` or ``sim://mlp``.
        grids: Grids that replace the adapter's own, by knob name.
        load: The requests to send; the server's own traffic is watched if None.
        seed: Of the requests we send.
        foreign_limit: Cores used by foreign processes above which a window is disturbed.
        clock: For a live target; the wall clock if None. A simulated one has its own.
        indicator: Tells the latency better than the server and our own load.

    Raises:
        InvalidInput: A setting is unusable.
        AdapterError: The server cannot be reached.
    """
    load = load or Load()
    with ExitStack() as opened:
        backend = opened.enter_context(closing(connect(target, grids)))
        if isinstance(backend, Simulated):
            if indicator is not None:
                raise InvalidInput("--sli-prometheus", "a simulated target has its own time", "leave it out")
            yield _simulated(backend, load)
            return
        from tuner.profiler.host import LocalHost, RemoteHost

        description = backend.describe()
        generator = _generator(backend, load, seed)
        if generator is not None:
            opened.callback(generator.stop)
        host = LocalHost(description.processes) if description.processes else RemoteHost()
        opened.callback(host.close)
        yield _live(
            backend,
            description,
            generator,
            host,
            foreign_limit=foreign_limit,
            clock=clock or WallClock(),
            indicator=indicator,
        )


def _simulated(backend: Backend, load: Load) -> Attachment:
    assert isinstance(backend, Simulated)
    if load.arrival is not None:
        raise InvalidInput(
            "--arrival", "a simulated target has its own", "write sim://mlp?rate=200&shape=0.5"
        )
    if load.nominal is not None:
        backend.set_rate(load.nominal)
    return Attachment(
        backend=backend,
        description=backend.describe(),
        profiler=Profiler(backend, clock=backend, host=backend, clients=backend),
        clock=backend,
        host=backend,
        clients=backend,
        load=backend,
        original=backend.current(),
    )


def _generator(backend: Backend, load: Load, seed: int) -> LoadGenerator | None:
    """Return what sends requests of our own; None if nothing is to be sent."""
    if load.rate is None and load.arrival is None:
        return None
    from tuner.profiler.load.generator import LoadGenerator

    arrival = load.arrival or f"poisson:{load.nominal}"
    if not isinstance(backend, Loadable):
        raise InvalidInput("--rate", "no requests can be sent to this kind of target", "leave it out")
    return LoadGenerator(backend.endpoint(), arrival, shapes=load.shapes, seed=seed, timeout=TIMEOUT)


def _live(
    backend: Backend,
    description: Description,
    load: LoadGenerator | None,
    host: Host,
    *,
    foreign_limit: float,
    clock: Clock,
    indicator: Indicator | None,
) -> Attachment:
    profiler = Profiler(
        backend, clock=clock, host=host, clients=load, foreign_limit=foreign_limit, indicator=indicator
    )
    return Attachment(
        backend=backend,
        description=description,
        profiler=profiler,
        clock=clock,
        host=host,
        clients=load,
        load=load,
        indicator=indicator,
        original=backend.current(),
    )


def require_resource(attachment: Attachment, goal: str) -> None:
    """Check that what is to be saved can be measured.

    Raises:
        InvalidInput: It cannot.
    """
    reading = attachment.host.read()
    if goal == "cpu" and math.isnan(reading.server):
        raise InvalidInput(
            "--objective", "the server's CPU use cannot be seen from this machine", "use latency"
        )
    if goal == "gpu" and math.isnan(reading.gpu):
        raise InvalidInput("--objective", "no GPU can be seen from this machine", "use latency or cpu")
