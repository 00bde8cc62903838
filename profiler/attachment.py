"""Attaches to a target: backend, profiler, clock, machine, and a load of our own if one is wanted.

Only this module knows the difference between targets: a simulated one brings its own clock, machine and
clients, and a live one is watched with the wall clock and the process table of this machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_fixed

from tuner.adapters import Backend, Description, connect
from tuner.adapters.connection.endpoint import Loadable
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, Grids, KnobSpace
from tuner.measurement import NOT_KNOWN
from tuner.profiler.clock import WallClock
from tuner.profiler.indicator import make_indicator
from tuner.profiler.load.in_flight import IN_FLIGHT, Group, GroupWithInFlight, WithInFlight
from tuner.profiler.profiler import Profiler
from tuner.profiler.source import Clients, Clock, Host, Indicator
from tuner.profiler.window import LIMITS, Limits
from tuner.setting import Load, Setting

if TYPE_CHECKING:
    from tuner.profiler.host import LocalHost, RemoteHost
    from tuner.profiler.load.generator import LoadGenerator

__all__ = ["Attachment", "Simulated", "attach", "attach_for", "require_resource"]

TIMEOUT = 30.0
"""When a request of our own counts as lost, s: long enough for an overloaded server to catch up."""
LONGEST_DRAIN = 30.0
"""How long an overloaded server may take to answer its backlog, s."""
FIRST_SAMPLE = 3.0
"""How long a server is asked for the use of its GPUs, s: a fresh Triton samples them after two."""
DRAINED = 0.050
"""Mean queueing time below which an overloaded server has answered its backlog, s; the requests that come in
it may still be unanswered."""


@runtime_checkable
class Simulated(Clock, Clients, Host, Protocol):
    """A backend that is its own clock, machine and clients."""

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
    """A backend with everything that is needed to watch it, and to send load to it."""

    backend: Backend
    description: Description
    profiler: Profiler
    clock: Clock
    host: Host
    load: LoadGenerator | Simulated | None
    """The load of our own, whose requests are timed; None if the server's own traffic is watched."""
    original: Configuration
    """The server's configuration when we attached."""
    indicator: Indicator | None = None
    """Another source of the latency, if there is one."""

    @property
    def space(self) -> KnobSpace:
        """The knobs."""
        return self.backend.space

    @property
    def simulated(self) -> bool:
        """Whether the target is simulated, in virtual time."""
        return isinstance(self.backend, Simulated)

    @property
    def cores(self) -> float:
        """CPU cores of the server's machine; NaN if that is another one, for which its host has a guess."""
        from tuner.profiler.host import RemoteHost

        return NOT_KNOWN if isinstance(self.host, RemoteHost) else self.host.cores

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
        """Offer a light load until an overloaded server has answered its backlog, 30 s at most.

        Raises:
            InvalidInput: There is no load of our own.
            AdapterError: The server cannot be asked.
        """
        self.set_rate(rate)
        deadline = self.clock.now() + LONGEST_DRAIN
        while self.clock.now() < deadline:
            waits = self.profiler.measure(0.5).queue_mean > DRAINED
            if not waits and self._outstanding() <= 1 + rate * DRAINED:
                return

    def _outstanding(self) -> int:
        """Requests of our own without an answer: not every server says how long its queue is."""
        if self.load is None or isinstance(self.load, Simulated):
            return 0
        return self.load.totals().outstanding

    def take_up(self, configuration: Mapping[str, float]) -> None:
        """Have our own clients go on as an earlier process left them; the server is left as it is."""
        if isinstance(self.backend, WithInFlight):
            self.backend.take_up(configuration)
            self.original = self.space.with_clients(self.original, configuration)

    def restore(self) -> None:
        """Put back the configuration that the server had when we attached.

        Raises:
            AdapterError: The server cannot be reached or refuses.
        """
        if isinstance(self.backend, _Restorable):
            self.backend.restore()
        else:
            self.backend.apply(self.original)

    def request_totals(self, failed: int, answered: int) -> tuple[int, int]:
        """Return how many requests failed and were sent: of our own load, or without one of the windows.

        Args:
            failed: Requests that failed in the windows.
            answered: Requests that were answered in them.
        """
        if self.load is not None and not isinstance(self.load, Simulated):
            totals = self.load.totals()
            return totals.failed, totals.sent
        return failed, failed + answered


def attach_for(
    setting: Setting, target: str, *, seed: int = 0, clock: Clock | None = None
) -> AbstractContextManager[Attachment]:
    """Attach to a target as a setting says; see :func:`attach`.

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
    foreign_limit: float | None = None,
    clock: Clock | None = None,
    indicator: Indicator | None = None,
) -> Iterator[Attachment]:
    """Attach to a target for the length of a block. Attaching and detaching change nothing on the server.

    Args:
        target: Such as ``triton://127.0.0.1:8001/mlp?metrics=8002`` or ``sim://mlp``.
        grids: Grids that replace the adapter's own, by knob name.
        load: The requests to send; the server's own traffic is watched if None.
        seed: Seed of the requests to send.
        foreign_limit: Cores used by foreign processes above which a window is disturbed; None: however many.
        clock: The clock for a live target; the wall clock if None. A simulated target has its own.
        indicator: A source of latencies that takes the place of the server's and of our own load's.

    Raises:
        InvalidInput: An argument means nothing for this target, or is unusable.
        AdapterError: The server cannot be reached.
    """
    load = load or Load()
    limits = LIMITS if foreign_limit is None else Limits(foreign=foreign_limit)
    with ExitStack() as opened:
        of_server = dict(grids or {})
        in_flight = of_server.pop(IN_FLIGHT, None)
        backend: Backend = opened.enter_context(closing(connect(target, of_server)))
        if isinstance(backend, Simulated):
            if indicator is not None:
                raise InvalidInput("--sli-prometheus", "a simulated target has its own time", "leave it out")
            _with_client_limit(backend, None, in_flight)  # refuses the knob: there are no clients of ours
            _offer(backend, load)
            description = backend.describe()
            yield _attached(backend, description, backend, clock=backend, host=backend, limits=limits)
            return
        description = backend.describe()
        generator = _generator(backend, load, seed)
        if generator is not None:
            opened.callback(generator.stop)
        backend = _with_client_limit(backend, generator, in_flight)
        host = opened.enter_context(closing(_host(description)))
        yield _attached(
            backend,
            description,
            generator,
            clock=clock or WallClock(),
            host=host,
            limits=limits,
            indicator=indicator,
        )


def _host(description: Description) -> LocalHost | RemoteHost:
    """Return the server's machine: this one, if its processes are seen here."""
    from tuner.profiler.host import LocalHost, RemoteHost

    if not description.processes:
        return RemoteHost()
    return LocalHost(description.processes, on_gpu=description.on_gpu)


def _offer(backend: Simulated, load: Load) -> None:
    """Set the rate of a simulated target.

    Raises:
        InvalidInput: The load asks for something that a simulated target has by itself.
    """
    if load.arrival is not None:
        raise InvalidInput(
            "--arrival", "a simulated target has its own", "write sim://mlp?rate=200&shape=0.5"
        )
    if load.shapes:
        raise InvalidInput("--shape", "a simulated target has no inputs", "leave it out")
    if load.nominal is not None:
        backend.set_rate(load.nominal)


def _generator(backend: Backend, load: Load, seed: int) -> LoadGenerator | None:
    """Return the generator of our own load; None without such a load.

    Raises:
        InvalidInput: No requests can be sent there; or none are to be sent, and they are given shapes.
    """
    if load.rate is None and load.arrival is None:
        if load.shapes:
            raise InvalidInput("--shape", "means nothing without requests of our own", "add --rate")
        return None
    from tuner.profiler.load.generator import LoadGenerator

    arrival = load.arrival or f"poisson:{load.nominal}"
    if not isinstance(backend, Loadable):
        raise InvalidInput("--rate", "no requests can be sent to this kind of target", "leave it out")
    return LoadGenerator(
        backend.endpoint(),
        arrival,
        shapes=load.shapes,
        seed=seed,
        timeout=TIMEOUT,
        present=backend.endpoint,
    )


def _with_client_limit(
    backend: Backend, load: LoadGenerator | None, in_flight: tuple[float, ...] | None
) -> Backend:
    """Return a backend with the knob of our clients beside its own, if there is a grid for it.

    Raises:
        InvalidInput: There is a grid, and no load of our own.
    """
    if in_flight is None:
        return backend
    if load is None:
        raise InvalidInput(f"knob {IN_FLIGHT}", "a knob of our own requests to a live server", "add --rate")
    if isinstance(backend, Group):
        return GroupWithInFlight(backend, load, in_flight)
    return WithInFlight(backend, load, in_flight)


def _attached(
    backend: Backend,
    description: Description,
    load: LoadGenerator | Simulated | None,
    *,
    clock: Clock,
    host: Host,
    limits: Limits,
    indicator: Indicator | None = None,
) -> Attachment:
    return Attachment(
        backend=backend,
        description=description,
        profiler=Profiler(backend, clock=clock, host=host, clients=load, limits=limits, indicator=indicator),
        clock=clock,
        host=host,
        load=load,
        indicator=indicator,
        original=backend.current(),
    )


def require_resource(attachment: Attachment, goal: str) -> None:
    """Check that the resource that a goal saves can be measured.

    Raises:
        InvalidInput: It cannot be measured.
    """
    reading = attachment.host.read()
    if goal == "cpu" and math.isnan(reading.server):
        raise InvalidInput(
            "--objective", "the server's CPU use cannot be seen from this machine", "use latency"
        )
    if goal == "gpu" and math.isnan(reading.gpu.share):
        ask = Retrying(
            retry=retry_if_result(lambda gpus: any(math.isnan(gpu.share) for gpu in gpus)),
            wait=wait_fixed(0.5),
            stop=stop_after_attempt(1 + int(FIRST_SAMPLE / 0.5)),
            sleep=attachment.clock.sleep,
            retry_error_callback=lambda _: (),
        )
        if not ask(lambda: attachment.backend.counters().gpus):
            problem = "no GPU can be seen from this machine, and the server reports none"
            raise InvalidInput("--objective", problem, "use latency or cpu")
