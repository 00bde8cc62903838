"""The dispatcher before two real Tritons, for the stock client, while one of them is killed and restarted."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import tritonclient.grpc.aio as tritongrpc

from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.process import DispatchProcess

pytestmark = [pytest.mark.triton, pytest.mark.slow]
COUNT = 300


@pytest.mark.parametrize("over_http", [False, True])
def test_each_caller_gets_its_own_answer(over_http: bool) -> None:
    """Also while a server is killed and restarted; a batch is one request to the server."""
    with EmbeddedTriton("small") as first, EmbeddedTriton("small") as second:
        targets = [f"triton://127.0.0.1:{one.ports.grpc}/small" for one in (first, second)]
        if over_http:
            ports = [one.ports.http for one in (first, second)]
            targets = [f"{target}?http={port}" for target, port in zip(targets, ports, strict=True)]
        config = DispatchConfig.model_validate(
            {
                "listen": {"grpc": "127.0.0.1:0"},
                "sessions": [{"name": "small", "slo_ms": 60_000.0, "backends": targets}],
                "options": {"deferral": 0.001},
            }
        )

        async def main() -> tuple[list[np.ndarray], list[np.ndarray], int]:
            process = DispatchProcess(config, lambda _: None)
            started = asyncio.Event()
            serving = asyncio.ensure_future(process.serve(started.set))
            await started.wait()
            assert process.fronts.grpc_address is not None
            loop = asyncio.get_running_loop()
            rows = np.random.default_rng(0).random((COUNT, 1, 64), np.float32)
            async with tritongrpc.InferenceServerClient(f"127.0.0.1:{second.ports.grpc}") as direct:
                expected = [await ask(direct, row) for row in rows]
            async with tritongrpc.InferenceServerClient(
                f"127.0.0.1:{process.fronts.grpc_address[1]}"
            ) as client:
                assert await client.is_model_ready("small")
                killing = loop.run_in_executor(None, first.kill)
                calls = []
                for row in rows:
                    calls.append(asyncio.ensure_future(ask(client, row)))
                    await asyncio.sleep(0.002)
                answers = await asyncio.gather(*calls)
                await killing
                await loop.run_in_executor(None, first.restart)
                up = process.dispatcher.pools[0].servers[0]
                while not up.up:
                    await asyncio.sleep(0.05)
                await ask(client, rows[0])
            batches = process.metrics.totals.to_json()["batch_counts"]
            process.stop()
            await serving
            return expected, answers, sum(batches)

        expected, answers, batches = asyncio.run(main())

    assert all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(expected, answers, strict=True))
    assert batches < COUNT


async def ask(client: tritongrpc.InferenceServerClient, row: np.ndarray) -> np.ndarray:
    data = tritongrpc.InferInput("input", list(row.shape), "FP32")
    data.set_data_from_numpy(row)
    found = (await client.infer("small", [data])).as_numpy("output")
    assert found is not None
    return np.asarray(found)
