"""``tuner demo --dispatch``: two Tritons with three models, before and after a dispatcher stands in front.

At two loads that the machine decides: one that the servers bear by themselves, where a dispatcher only costs
time, and one that is too much for them without batches.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tuner.adapters.triton.embedded import TritonPorts

__all__ = ["run_dispatch_demo"]

SHAPES = {"mlp": (256,), "cnn": (3, 32, 32), "small": (64,)}
"""The models, and the shapes of their inputs."""
SLO = 0.1
"""s"""
MIX = {"mlp": 3 / 7, "cnn": 1 / 7, "small": 3 / 7}
"""Shares of the requests."""
SECONDS, WARMUP = 8.0, 3.0
FIRST, FASTER, LAST = 100.0, 1.3, 2000.0
"""Loads of all models that are tried, requests/s: the first, how much higher the next is, and the last."""
TRIAL, BORNE = 3.0, 0.95
"""Length of a trial, s, and the share of requests answered within the SLO while the servers bear it."""
SHARES = (0.6, 1.3)
"""The loads that are shown, over the highest that the servers bear by themselves."""


@dataclass(frozen=True)
class Came:
    """What came of one request."""

    model: str
    latency: float
    """s; infinite without an answer."""


def run_dispatch_demo(console: Console, seed: int) -> None:
    """Start the servers, load them, put a dispatcher in front, load it, and show both."""
    from tuner.adapters.triton.embedded import EmbeddedTriton

    with ExitStack() as stack:
        console.print("starting two Tritons with the models mlp, cnn and small")
        tritons = [stack.enter_context(EmbeddedTriton("mlp", models=tuple(SHAPES))) for _ in range(2)]
        ports = [one.ports for one in tritons]
        addresses = [f"127.0.0.1:{one.grpc}" for one in ports]
        console.print("[bold]loads:[/bold] trying what the two servers bear by themselves")
        bears = asyncio.run(_bears(addresses, seed))
        loads = [share * bears for share in SHARES]
        said = f"loads of {loads[0]:.0f} and {loads[1]:.0f}"
        console.print(f"      {BORNE:.0%} within {SLO * 1e3:g} ms up to {bears:.0f} requests/s: {said}")
        console.print("[bold]before:[/bold] stock clients send to the two servers by turns")
        before = [asyncio.run(_load(addresses, seed, load)) for load in loads]
        console.print("[bold]after:[/bold] the same clients send to the dispatcher")
        found = [asyncio.run(_dispatched(ports, console, seed, load)) for load in loads]
    _show(console, before, [after for after, _ in found])
    batches = " and ".join(f"{batch:.1f}" for _, batch in found)
    console.print(f"mean batch through the dispatcher: {batches}")


async def _bears(addresses: Sequence[str], seed: int) -> float:
    """Return the highest load that the servers bear by themselves, requests/s; the least tried if none."""
    rate = bears = FIRST
    while rate <= LAST:
        found = await _load(addresses, seed, rate, seconds=TRIAL, warmup=1.0)
        if np.mean([came.latency <= SLO for came in found]) < BORNE:
            break
        rate, bears = FASTER * rate, rate
    return bears


async def _dispatched(
    servers: Sequence[TritonPorts], console: Console, seed: int, rate: float
) -> tuple[list[Came], float]:
    """Run a dispatcher before the servers, and the load on it; return the mean batch, too."""
    from tuner.cli.console import plain
    from tuner.dispatch.config import DispatchConfig
    from tuner.dispatch.process import DispatchProcess

    sessions = [
        {
            "name": model,
            "slo_ms": SLO * 1e3,
            "backends": [f"triton://127.0.0.1:{one.grpc}/{model}?http={one.http}" for one in servers],
        }
        for model in SHAPES
    ]
    config = DispatchConfig.model_validate({"listen": {"grpc": "127.0.0.1:0"}, "sessions": sessions})
    process = DispatchProcess(config, lambda sentence: console.print(f"      {plain(sentence)}"))
    started = asyncio.Event()
    serving = asyncio.ensure_future(process.serve(started.set))
    serving.add_done_callback(lambda _: started.set())
    await started.wait()
    if serving.done():
        await serving  # it could not start, and says why
    assert process.fronts.grpc_address is not None
    found = await _load([f"127.0.0.1:{process.fronts.grpc_address[1]}"], seed, rate)
    process.stop()
    await serving
    totals = process.metrics.totals.to_json()
    return found, totals["inferences"] / max(sum(totals["batch_counts"]), 1)


async def _load(
    addresses: Sequence[str], seed: int, rate: float, *, seconds: float = SECONDS, warmup: float = WARMUP
) -> list[Came]:
    """Send requests of all models at random times by Triton's own client; leave out the warm-up.

    Args:
        addresses: Of the servers, which have their turns.
        seed: Of the times and the inputs.
        rate: Of all models, requests/s.
        seconds: How long the load lasts after the warm-up.
        warmup: How long that is, s.
    """
    import tritonclient.grpc.aio as tritongrpc

    from tuner.heap import heap_at_rest

    clients = [tritongrpc.InferenceServerClient(address) for address in addresses]
    rng = np.random.default_rng(seed)
    arrivals = sorted(
        (float(time), model)
        for model, share in MIX.items()
        for time in rng.uniform(0, seconds + warmup, rng.poisson(share * rate * (seconds + warmup)))
    )
    loop = asyncio.get_running_loop()
    tasks = []
    with heap_at_rest():  # with and without a dispatcher: its process rests here, too
        began = loop.time()
        for number, (time, model) in enumerate(arrivals):
            await asyncio.sleep(max(began + time - loop.time(), 0))
            client = clients[number % len(clients)]
            tasks.append((time, loop.create_task(_ask(client, model, rng, began + time))))
        found = [(time, await task) for time, task in tasks]
    for client in clients:
        await client.close()
    return [came for time, came in found if time >= warmup]


async def _ask(client: Any, model: str, rng: np.random.Generator, intended: float) -> Came:
    import tritonclient.grpc.aio as tritongrpc
    from tritonclient.utils import InferenceServerException

    data = tritongrpc.InferInput("input", [1, *SHAPES[model]], "FP32")
    data.set_data_from_numpy(rng.random((1, *SHAPES[model]), np.float32))
    try:
        await client.infer(model, [data], client_timeout=10.0)
    except InferenceServerException:
        return Came(model, float("inf"))
    return Came(model, asyncio.get_running_loop().time() - intended)


def _show(console: Console, before: Sequence[list[Came]], after: Sequence[list[Came]]) -> None:
    """Print what came of the requests of each model under each load."""
    from tuner.cli.console import make_table

    numbers = ("requests/s", "p50 ms", "p95 ms", f"within {SLO * 1e3:g} ms")
    table = make_table("Before and after", ["model", ""], numbers)
    for pair in zip(before, after, strict=True):
        for model in SHAPES:
            for name, found in zip(("before", "after"), pair, strict=True):
                latencies = np.array([came.latency for came in found if came.model == model])
                answered = latencies[np.isfinite(latencies)]
                p50, p95 = np.quantile(answered, [0.5, 0.95]) * 1e3 if answered.size else (np.nan, np.nan)
                within = float((latencies <= SLO).mean()) if latencies.size else 0.0
                cells = (f"{latencies.size / SECONDS:.0f}", f"{p50:.1f}", f"{p95:.1f}", f"{within:.1%}")
                table.add_row(model if name == "before" else "", name, *cells)
        table.add_section()
    console.print(table)
