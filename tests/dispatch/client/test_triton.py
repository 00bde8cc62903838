"""Grants before two real Tritons that merge what they get."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as tritongrpc

from tests.docs.page import ROOT, blocks
from tests.waiting import eventually
from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.dispatch.client import AsyncGrantClient
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.process import DispatchProcess

pytestmark = [pytest.mark.triton, pytest.mark.slow]
COUNT = 200


def test_frontends_ask_and_send(capsys: pytest.CaptureFixture[str]) -> None:
    """Each gets its own answer from a server, which executed fewer batches than requests."""
    with EmbeddedTriton("small") as first, EmbeddedTriton("small") as second:
        ports = [one.ports.grpc for one in (first, second)]
        before = executions(ports)
        config = DispatchConfig.model_validate(
            {
                "listen": {"grpc": "127.0.0.1:0"},
                "mode": "grants",
                "sessions": [
                    {
                        "name": "small",
                        "slo_ms": 2000.0,
                        "backends": [f"triton://127.0.0.1:{port}/small" for port in ports],
                    }
                ],
                "options": {"deferral": 0.02},
            }
        )
        rows = np.random.default_rng(0).random((COUNT, 1, 64), np.float32)
        with tritongrpc.InferenceServerClient(f"127.0.0.1:{ports[0]}") as direct:
            expected = [direct.infer("small", [data(row)]).as_numpy("output") for row in rows]
        eventually(lambda: executions(ports) - before == COUNT)  # Triton answers before it counts
        for port in ports:
            batch_by_itself(port)
        begun = executions(ports)

        async def main() -> list[np.ndarray]:
            process = DispatchProcess(config, warnings.append)
            started = asyncio.Event()
            serving = asyncio.ensure_future(process.serve(started.set))
            await started.wait()
            address = "{}:{}".format(*process.fronts.grpc_address or ())
            async with AsyncGrantClient(address) as client:
                calls = []
                for row in rows:
                    calls.append(asyncio.ensure_future(client.infer("small", [data(row)])))
                    await asyncio.sleep(0.002)
                answers = [one.as_numpy("output") for one in await asyncio.gather(*calls)]
            await documented(address)
            process.stop()
            await serving
            return answers

        warnings: list[str] = []
        answers = asyncio.run(main())
        executed = executions(ports) - begun

    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["(1, 64)", "20 answers"]
    assert said[2].startswith("127.0.0.1:")
    for known, answer in zip(expected, answers, strict=True):
        np.testing.assert_allclose(known, answer, rtol=1e-4, atol=1e-5)
    assert executed < (COUNT + 22) * 0.8
    assert not [one for one in warnings if "batching" in one]


async def documented(address: str) -> None:
    """Run the example of docs/dispatch.md, with another address and model."""
    (example,) = blocks(ROOT / "docs" / "dispatch.md", "python")
    for old, new in (("127.0.0.1:9100", address), ("mlp", "small"), ("256", "64"), ("=0.04", "=9.0")):
        example = example.replace(old, new)
    found: dict[str, Any] = {}
    exec(example, found)
    await asyncio.to_thread(found["from_threads"])
    await found["from_an_event_loop"]()


def data(row: np.ndarray) -> tritongrpc.InferInput:
    found = tritongrpc.InferInput("input", list(row.shape), "FP32")
    found.set_data_from_numpy(row)
    return found


def batch_by_itself(port: int) -> None:
    """Give a server a batcher with a delay in which other requests come, also on a slow machine."""
    with tritongrpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
        config = client.get_model_config("small", as_json=True)["config"]
        config["dynamic_batching"] = {"max_queue_delay_microseconds": 50_000}
        client.load_model("small", config=json.dumps(config))


def executions(ports: list[int]) -> int:
    total = 0
    for port in ports:
        with tritongrpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
            (model,) = client.get_inference_statistics("small", as_json=True)["model_stats"]
            total += int(model.get("execution_count", 0))
    return total
