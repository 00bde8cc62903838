"""The backend of a live server, as far as it is the same for all servers.

An adapter says how its server is opened, read and changed; when that happens, what is checked before a change
and what is reported after it stand here.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.connection.client import ControlClient
from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.host import listening_processes, local_cores
from tuner.adapters.connection.target import LiveTarget
from tuner.adapters.live.knobs import KnobKind, check
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Configuration, Grids, KnobSpace, Role
from tuner.profile import BatchingProfile, fit_profile

__all__ = ["Capabilities", "Change", "LiveBackend"]

UNKNOWN_CORES = 4
"""Taken for a server on another machine."""
OUT_OF_SIGHT = "the server's process is not visible from here: its CPU use is not measured"

TargetT = TypeVar("TargetT", bound=LiveTarget)
ClientT = TypeVar("ClientT", bound=ControlClient[Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What a change of a server did."""

    configuration: Configuration
    """What it runs now."""
    cost: ApplyCost = ApplyCost.FREE
    """What it cost beyond what its knobs say."""
    affected: float | None = None
    """Requests that had to wait for it; None if nobody counted them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What a server is, and what can be measured and changed through its interfaces now."""

    server: str
    version: str
    quantiles: bool
    """Whether the server exports latency quantiles."""
    lacks: tuple[str, ...] = ()
    """As of :class:`~tuner.adapters.backend.Description`."""
    quantile_memory: float = 0.0
    """As of :class:`~tuner.adapters.backend.Description`."""
    counts_by_process: bool = False
    """As of :class:`~tuner.adapters.backend.Description`."""
    on_gpu: bool | None = None
    """As of :class:`~tuner.adapters.backend.Description`."""
    read_only: list[str] = field(default_factory=list)
    """Why it takes no changes; empty if it does."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the operator."""
    without_knobs: list[str] = field(default_factory=list)
    """As of :class:`~tuner.adapters.backend.Description`; ``notes`` need not have them, too."""


class LiveBackend(ABC, Generic[TargetT, ClientT]):
    """One model on one live server; :class:`~tuner.adapters.backend.Backend` says what callers may rely on.

    Opening it reads what the server runs and remembers it, so that ``restore`` can put back exactly what was
    found. From then on totals are counted, over restarts of the server.

    Args:
        target: As the user wrote it.
        grids: Grids in place of the default ones, by knob name, and of further knobs.
        timeout: Longest wait for an answer, s.
        load_timeout: Longest wait until the server runs a change, s; that of the target if None.
        settle: How long after a change latencies are disturbed, s; the server's usual time if None.

    Raises:
        InvalidInput: The target or a grid cannot be used.
        UnknownModel: The server does not serve the model.
        Unreachable: The server or its metrics do not answer.
    """

    wire: ClassVar[str]
    """The module that makes requests: a :class:`~tuner.adapters.connection.endpoint.Wire`."""
    usual_settle: ClassVar[float]
    """How long after a change latencies are usually disturbed, s."""

    def __init__(
        self,
        target: str,
        grids: Grids | None = None,
        *,
        timeout: float = 5.0,
        load_timeout: float | None = None,
        settle: float | None = None,
    ) -> None:
        self._target = self._parse(target)
        self._timeout = timeout
        self._load_timeout = self._target.load_timeout if load_timeout is None else load_timeout
        self._settle = self.usual_settle if settle is None else settle
        self._lock = threading.Lock()  # a watcher may sample while the loop applies
        self._rows = 1  # most rows that requests may have, as far as was seen
        self._splits_requests = False  # whether the server splits requests larger than its batch limit
        self._client = self._connect()
        try:
            self._space = self._open(grids or {})
        except BaseException:
            self._client.close()
            raise

    @abstractmethod
    def _parse(self, target: str) -> TargetT:
        """Read the target."""

    @abstractmethod
    def _connect(self) -> ClientT:
        """Return a client of the server."""

    @abstractmethod
    def _open(self, grids: Grids) -> KnobSpace:
        """Read what the server runs, begin to count, and return the knobs."""

    @abstractmethod
    def _inspect(self, processes: tuple[int, ...]) -> Capabilities:
        """Ask the server what it is and what it can do.

        Args:
            processes: The server's processes, if they are visible from here.
        """

    @abstractmethod
    def _endpoint_options(self) -> dict[str, str]:
        """Return what names the model or a part of it in requests, besides its name."""

    @abstractmethod
    def _kind_of(self, knob: str) -> KnobKind:
        """Return the kind of a knob."""

    @abstractmethod
    def current(self) -> Configuration:
        """Read from the server what it runs."""

    @abstractmethod
    def _largest_request(self, running: Configuration) -> int:
        """Return how many rows requests may have, as far as the server shows it.

        Args:
            running: What the server runs.
        """

    @abstractmethod
    def _change(self, running: Configuration, wanted: Configuration) -> Change:
        """Have the server run another configuration, and verify by reading back that it does."""

    @abstractmethod
    def _put_back(self) -> Change | None:
        """Have the server run what was found at opening; None if it does already."""

    @abstractmethod
    def _count(self, now: float) -> Counters:
        """Read the totals. The lock is held.

        Args:
            now: The time, s on the monotonic clock.
        """

    @abstractmethod
    def _batches(self) -> tuple[np.ndarray, np.ndarray]:
        """Read executions per batch size since opening, and the seconds in them.   # (B+1,), (B+1,) s."""

    def _check_writable(self) -> None:
        """Raise ReadOnly if it is known beforehand that the server takes no changes."""

    @property
    def space(self) -> KnobSpace:
        """The knobs that can be turned, and their grids."""
        return self._space

    @property
    def load_timeout(self) -> float:
        """Longest wait until the server runs a change, s."""
        return self._load_timeout

    def endpoint(self) -> Endpoint:
        """Return how clients reach the model."""
        return Endpoint(
            wire=self.wire,
            address=self._target.address,
            model=self._target.model,
            options=self._endpoint_options(),
            security=self._target.security.options(),
        )

    def describe(self) -> Description:
        """Return who this is and what it can do."""
        processes = self._processes()
        found = self._inspect(processes)
        unseen = () if processes else (OUT_OF_SIGHT,)
        return Description(
            target=self._target.url,
            server=found.server,
            version=found.version,
            model=self._target.model,
            writable=not found.read_only,
            quantiles=found.quantiles,
            lacks=found.lacks,
            quantile_memory=found.quantile_memory,
            processes=processes,
            counts_by_process=found.counts_by_process,
            on_gpu=found.on_gpu,
            notes=(*found.read_only, *found.without_knobs, *found.notes, *unseen),
            without_knobs=tuple(found.without_knobs),
        )

    def check(self, configuration: Configuration) -> None:
        """Raise what applying a configuration would raise before it changes anything.

        Raises:
            InvalidInput: A knob is unknown or missing, or has an unusable value.
            ReadOnly: The server takes no changes.
            AdapterError: The server cannot be asked.
        """
        self._checked(configuration)

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Make the server run a configuration, verified by reading back.

        Without batching (a batch limit of 1) nothing waits for a batch: such configurations differ in name
        only, and the report gives the knobs that have no effect then as 0.
        """
        begun = time.monotonic()
        running, wanted = self._checked(configuration)
        if running == wanted:
            return ApplyReport.unchanged(running, seconds=time.monotonic() - begun)
        return self._report(running, self._change(running, wanted), begun)

    def _checked(self, configuration: Configuration) -> tuple[Configuration, Configuration]:
        """Check what is to be applied; return what the server runs, and what it would run.

        What runs already may be nothing that it could be set to: its operator can write any file.
        """
        self._space.check_complete(configuration)
        running, wanted = self.current(), self._space.effective(configuration)
        if running != wanted:
            check(self._space, configuration, self._kind_of)
            self._check_writable()
            self._check_rows(running, wanted)
        return running, wanted

    def restore(self) -> ApplyReport:
        """Put back exactly what was found at opening.

        Raises:
            AdapterError: As ``apply``.
        """
        begun = time.monotonic()
        running = self.current()
        change = self._put_back()
        if change is None:
            return ApplyReport.unchanged(running, seconds=time.monotonic() - begun)
        return self._report(running, change, begun)

    def _report(self, before: Configuration, change: Change, begun: float) -> ApplyReport:
        return ApplyReport(
            configuration=change.configuration,
            changed=True,
            cost=max(self._space.apply_cost(before, change.configuration), change.cost),
            seconds=time.monotonic() - begun,
            settle=self._settle,
            affected=change.affected,
        )

    def _check_rows(self, running: Configuration, wanted: Configuration) -> None:
        """Refuse a batch limit below the rows of the clients' requests: the server would refuse those."""
        batch = self._space.with_role(Role.BATCH)
        if batch is None or self._splits_requests:
            return
        self._rows = max(self._rows, self._largest_request(running))
        limit = wanted[batch.name]
        if 1 < limit < self._rows:
            problem = f"{limit:g} is below {self._rows}, the rows that clients may send in one request"
            fix = "the server would refuse those; use a larger value, or 1 for no batching"
            raise InvalidInput(f"knob {batch.name}", problem, fix)

    def counters(self) -> Counters:
        """Read the totals."""
        with self._lock:
            return self._count(time.monotonic())

    def profile(self) -> BatchingProfile | None:
        """Return l(b) over everything seen since opening, or None before the first execution."""
        return fit_profile(*self._batches())

    def close(self) -> None:
        """Close the connection. Never changes the server. May be called twice."""
        self._client.close()

    def _processes(self) -> tuple[int, ...]:
        return listening_processes(self._target.host, self._target.port)

    def _cores(self) -> int:
        return local_cores(self._target.host, self._target.port) or UNKNOWN_CORES
