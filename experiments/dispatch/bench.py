"""The bench of the dispatcher's experiments: real Tritons, a dispatcher, and clients that check answers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
import numpy as np
from tritonclient.grpc import service_pb2

from tuner.adapters.embedded.server import free_ports
from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions
from tuner.adapters.triton.wire import METHOD
from tuner.errors import AdapterError
from tuner.heap import heap_at_rest

__all__ = [
    "HEAVY",
    "MODELS",
    "QUICK",
    "Answered",
    "CheckingClients",
    "Model",
    "RunningDispatcher",
    "arrivals",
    "dispatching",
    "rates_of",
    "servers",
]

PAYLOADS = 32
"""Different inputs of each model; the answers to them are known."""
CLOSE = 1e-3
"""Relative difference of an answer from the known one: larger batches are rounded otherwise."""
CHANNELS = 4
QUICK: dict[str, Any] = {"grpc_server": "native", "over_http": True}
"""The settings of `dispatching` with which a small request costs the dispatcher least."""
START = 300.0
"""s that a dispatcher may take to listen: on a machine that never ran its policy, it compiles it first."""


@dataclass(frozen=True)
class Model:
    """A model of the embedded servers, and what its clients want."""

    name: str
    shape: tuple[int, ...]
    slo: float
    """s"""
    share: float
    """Of all requests."""


MODELS = (
    Model("mlp", (256,), 0.060, 0.45),
    Model("cnn", (3, 32, 32), 0.060, 0.20),
    Model("small", (64,), 0.040, 0.35),
)
"""Batching pays much for the first, little for the second; the third hardly works at all."""
HEAVY = (
    Model("wide", (256,), 0.120, 0.30),
    Model("mlp", (256,), 0.080, 0.40),
    Model("cnn", (3, 32, 32), 0.080, 0.30),
)
"""An execution takes far longer than what a request costs besides, in a dispatcher or in a server's front."""


@contextmanager
def servers(count: int = 2, models: Sequence[Model] = MODELS) -> Iterator[list[EmbeddedTriton]]:
    """Run fresh servers with the models."""
    with ExitStack() as stack:
        names = [one.name for one in models]
        options = TritonOptions(summaries=False, metrics=False)
        yield [
            stack.enter_context(EmbeddedTriton(names[0], models=names, options=options)) for _ in range(count)
        ]


class RunningDispatcher(NamedTuple):
    """A dispatcher in a process of its own."""

    address: str
    """``host:port`` of its gRPC front."""
    pid: int


@contextmanager
def dispatching(
    tritons: Sequence[EmbeddedTriton],
    models: Sequence[Model] = MODELS,
    *,
    log: Path | None = None,
    grpc_server: str = "grpcio",
    over_http: bool = False,
    **settings: Any,
) -> Iterator[RunningDispatcher]:
    """Run ``tuner dispatch`` before some servers.

    Args:
        tritons: The servers.
        models: The sessions.
        log: Where it writes its event log at its end.
        grpc_server: What its clients speak to: ``grpcio`` or ``native``.
        over_http: Whether it sends its batches over HTTP.
        settings: Further fields of its file.
    """
    (port,) = free_ports(1)
    lines = [f'listen: {{grpc: "127.0.0.1:{port}", grpc_server: {grpc_server}}}']
    lines += [f"{name}: {value}" for name, value in settings.items()]
    lines.append("sessions:")
    for model in models:
        targets = ", ".join(f'"{_target(one, model, over_http)}"' for one in tritons)
        lines.append(f"  - {{name: {model.name}, slo_ms: {model.slo * 1e3:g}, backends: [{targets}]}}")
    with tempfile.TemporaryDirectory(prefix="servetune-dispatch-") as folder:
        file = Path(folder) / "dispatch.yaml"
        file.write_text("\n".join(lines) + "\n")
        command = [sys.executable, "-m", "tuner", "dispatch", str(file)]
        command += [] if log is None else ["--log", str(log)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_for(port, process)
            yield RunningDispatcher(f"127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def _target(triton: EmbeddedTriton, model: Model, over_http: bool) -> str:
    target = f"triton://127.0.0.1:{triton.ports.grpc}/{model.name}"
    return f"{target}?http={triton.ports.http}" if over_http else target


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens on a port."""
    ends = time.monotonic() + START
    while time.monotonic() < ends and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AdapterError("the dispatcher did not begin to listen")


class Answered(NamedTuple):
    """What came of one request."""

    model: str
    latency: float
    """s, from when it should have been sent."""
    status: str
    """Of gRPC: ``OK`` if it was answered."""
    right: bool
    """Whether the answer is that to its own input."""


@dataclass
class CheckingClients:
    """Clients that know the right answer to each of their inputs.

    Args:
        addresses: Where requests go, by turns.
    """

    addresses: Sequence[str]
    models: Sequence[Model] = MODELS
    _known: dict[str, np.ndarray] = field(default_factory=dict)  # model -> (PAYLOADS, n)
    _requests: dict[str, list[bytes]] = field(default_factory=dict)

    def learn(self, address: str) -> None:
        """Ask a server for the answer to each input, one by one."""

        async def main() -> None:
            async with grpc.aio.insecure_channel(address) as channel:
                call = channel.unary_unary(METHOD)
                for model in self.models:
                    rng = np.random.default_rng(len(self._known))
                    inputs = rng.random((PAYLOADS, *model.shape), np.float32)
                    self._requests[model.name] = [_request(model, one) for one in inputs]
                    rows = [_values(await call(one)) for one in self._requests[model.name]]
                    self._known[model.name] = np.array(rows)

        asyncio.run(main())

    def offer(self, arrivals: Sequence[tuple[float, str]], *, seed: int = 0) -> list[Answered]:
        """Send requests at their times, whatever comes of those before; return what came of each.

        Args:
            arrivals: Per request when it is sent, s, and its model.
            seed: Of the choice of inputs.
        """
        with heap_at_rest():  # the clients' own pauses would count as the servers'
            return asyncio.run(self._offer(arrivals, np.random.default_rng(seed)))

    async def _offer(self, arrivals: Sequence[tuple[float, str]], rng: np.random.Generator) -> list[Answered]:
        # Without a pool of their own, channels to one address would share a connection.
        channels = [
            grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
            for address in self.addresses
            for _ in range(CHANNELS)
        ]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        calls = [channel.unary_unary(METHOD) for channel in channels]
        which = rng.integers(0, PAYLOADS, len(arrivals)).tolist()
        loop = asyncio.get_running_loop()
        began = loop.time() + 0.1
        tasks: list[asyncio.Task[tuple[float, str, bytes]]] = []
        for number, (time_, model) in enumerate(arrivals):
            wait = began + time_ - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            call = calls[(number % len(self.addresses)) * CHANNELS + number // len(self.addresses) % CHANNELS]
            tasks.append(loop.create_task(_ask(call, self._requests[model][which[number]], began + time_)))
        found = await asyncio.gather(*tasks)
        for channel in channels:
            await channel.close()
        # Answers are compared at the end, because clients and servers share the cores.
        return [
            Answered(model, latency, status, status != "OK" or self._is_right(model, place, answer))
            for (_, model), place, (latency, status, answer) in zip(arrivals, which, found, strict=True)
        ]

    def _is_right(self, model: str, which: int, answer: bytes) -> bool:
        known, values = self._known[model][which], _values(answer)
        return known.shape == values.shape and np.allclose(known, values, rtol=CLOSE, atol=CLOSE)


async def _ask(call: Any, request: bytes, intended: float) -> tuple[float, str, bytes]:
    """Return how long the answer took, s, its status, and the answer."""
    loop = asyncio.get_running_loop()
    try:
        answer = await call(request, timeout=30.0)
    except grpc.aio.AioRpcError as error:
        return loop.time() - intended, error.code().name, b""
    return loop.time() - intended, "OK", answer


def _request(model: Model, values: np.ndarray) -> bytes:
    message = service_pb2.ModelInferRequest(model_name=model.name)
    message.inputs.add(name="input", datatype="FP32", shape=(1, *model.shape))
    message.raw_input_contents.append(values.tobytes())
    return bytes(message.SerializeToString())


def _values(answer: bytes) -> np.ndarray:
    message = service_pb2.ModelInferResponse.FromString(answer)
    return np.frombuffer(message.raw_output_contents[0], "<f4")


def rates_of(models: Sequence[Model], total: float) -> dict[str, float]:
    """Divide a rate among models by their shares; requests/s by model."""
    whole = sum(one.share for one in models)
    return {one.name: total * one.share / whole for one in models}


def arrivals(
    rates: Mapping[str, float], seconds: float, seed: int, burstiness: float = 1.0
) -> list[tuple[float, str]]:
    """Return requests of all models in order of time, s.

    Args:
        rates: By model, requests/s.
        seconds: How long.
        seed: Of the draws.
        burstiness: Squared coefficient of variation of the gaps; 1 for a Poisson process.
    """
    found = []
    for place, (model, rate) in enumerate(rates.items()):
        rng = np.random.default_rng((seed, place))
        gaps = rng.gamma(1 / burstiness, burstiness / rate, int(rate * seconds * 1.3) + 20)
        times = np.cumsum(gaps)
        found += [(float(time_), model) for time_ in times[times < seconds]]
    return sorted(found)
