"""Servers that exist only in the loop's time: they execute one batch after the other, and echo the inputs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuner.dispatch.backends.connection import Connection, Doubtful, Lost, ModelLimits
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.journal import Journal
from tuner.dispatch.keeper import Connect
from tuner.dispatch.request import Metadata, Refused, Reply, Request, Status, Tensor, TensorKind

MS = 1e-3


@dataclass
class FakeServer:
    """Answers each input under its name with ``-out``; its batches take ``alpha * items + beta``."""

    address: str
    alpha: float = 1 * MS
    beta: float = 4 * MS
    limits_of: dict[str, ModelLimits] = field(default_factory=dict)
    alive: bool = True
    stuck: bool = False
    """Whether it takes batches and does not answer."""
    version: str = "1"
    """Of its models."""
    poison: bytes = b""
    """It refuses batches that contain this."""
    unloaded: bool = False
    """Whether its models are gone, while it lives."""
    broken: bool = False
    """Whether our connection to it has a bug."""
    breaks: bool = False
    """Whether it answers probes, and cuts the connection over each batch."""
    batches: list[tuple[str, int]] = field(default_factory=list)
    """Model and items of each batch that it executed."""
    executing: int = 0
    """Batches that it has and did not answer yet."""
    _free: float = 0.0

    @property
    def probed_at(self) -> str:
        return self.address

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        if self.broken:
            raise ZeroDivisionError
        if not self.alive or self.breaks:
            raise Lost(f"{self.address}: connection refused")
        if self.unloaded or like.version not in {"", self.version}:
            raise Doubtful(Status.NOT_FOUND, f"{self.address}: {model} {like.version} is not found")
        self.executing += 1
        try:
            return await self._executed(model, inputs)
        finally:
            self.executing -= 1

    async def _executed(self, model: str, inputs: tuple[Tensor, ...]) -> Reply:
        loop, items = asyncio.get_running_loop(), inputs[0].shape[0]
        end = self._free = max(self._free, loop.time()) + self.alpha * items + self.beta
        while self.stuck:
            await asyncio.sleep(10 * MS)
        while loop.time() < end:
            await asyncio.sleep(end - loop.time())
            if not self.alive:
                raise Lost(f"{self.address}: connection reset")
        if self.poison and any(self.poison in tensor.content for tensor in inputs):
            raise Refused(Status.INVALID, f"{self.address}: cannot read the input")
        self.batches.append((model, items))
        outputs = [Tensor(f"{one.name}-out", one.datatype, one.shape, one.content) for one in inputs]
        return Reply(tuple(outputs), self.version)

    async def ready(self, model: str, timeout: float) -> bool:
        await asyncio.sleep(0.1 * MS)
        return self.alive and not self.stuck and not self.unloaded

    async def limits(self, model: str, timeout: float) -> ModelLimits:
        return self.limits_of.get(model, ModelLimits(max_batch=16))

    async def metadata(self, model: str, timeout: float) -> Metadata:
        kind, version = TensorKind("x", "FP32", (-1, 2)), self.version
        await asyncio.sleep(0.1 * MS)
        return Metadata(model, (version,), "fake", (kind,), (kind,))

    async def close(self) -> None:
        pass


@dataclass
class Counts:
    """An observer that counts."""

    arrivals: int = 0
    ends: list[tuple[str, Status | None, float]] = field(default_factory=list)
    executed_batches: list[tuple[str, str, int, float]] = field(default_factory=list)
    switches: list[tuple[str, bool]] = field(default_factory=list)

    def arrived(self, session: str) -> None:
        self.arrivals += 1

    def taken(self, session: str, items: int) -> None:
        pass

    def ended(self, session: str, status: Status | None, seconds: float, late: bool) -> None:
        self.ends.append((session, status, seconds))

    def executed(self, session: str, server: str, requests: int, items: int, seconds: float) -> None:
        self.executed_batches.append((session, server, items, seconds))

    def switched(self, server: str, up: bool) -> None:
        self.switches.append((server, up))

    def gone(self, server: str) -> None:
        pass

    def session_gone(self, session: str) -> None:
        pass

    def returned(self, sessions: Sequence[str]) -> None:
        pass


@dataclass
class Bench:
    """A dispatcher before fake servers ``a:1`` and ``b:1``."""

    config: DispatchConfig
    servers: dict[str, FakeServer]
    counts: Counts = field(default_factory=Counts)
    warnings: list[str] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        def connect(targets: Sequence[str]) -> Connection:
            return self.servers[targets[0].split("/")[2]]

        self.connect: Connect = connect
        self.say: Callable[[str], None] = self.warnings.append

    async def __aenter__(self) -> Dispatcher:
        self.dispatcher = Dispatcher(self.config, self.connect, self.counts, self.say, self.journal)
        await self.dispatcher.start(1.0)
        await asyncio.sleep(0.5)
        return self.dispatcher

    async def __aexit__(self, *_: object) -> None:
        await self.dispatcher.close()


def bench(*sessions: dict[str, object], servers: int = 2, **settings: object) -> Bench:
    """Return a bench; a session without a name is ``m`` with an SLO of 50 ms on all servers."""
    names = [f"{letter}:1" for letter in "abcdef"[:servers]]
    filled = []
    for session in sessions or ({},):
        name = session.get("name", "m")
        backends = [f"triton://{place}/{name}" for place in names]
        profile = {"alpha_ms": 1.0, "beta_ms": 4.0}
        filled.append({"name": name, "slo_ms": 50.0, "backends": backends, "profile": profile, **session})
    config = DispatchConfig.model_validate(
        {"listen": {"grpc": "127.0.0.1:0"}, "sessions": filled, **settings}
    )
    return Bench(config, {name: FakeServer(name) for name in names})


def request(content: bytes = b"12345678", session: str = "m", items: int = 1, **more: object) -> Request:
    """Return a request of FP32 items of width 2."""
    return Request(session, (Tensor("x", "FP32", (items, 2), content * items),), **more)  # type: ignore[arg-type]
