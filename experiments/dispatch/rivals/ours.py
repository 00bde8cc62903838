"""The dispatcher with its fronts, before a model in the same process: ``ours.py PORT``."""

from __future__ import annotations

import asyncio
import sys

from tuner.dispatch.backends.connection import ModelLimits
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.front import FrontConfig, Fronts
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.request import Metadata, Reply, Request, Tensor
from tuner.experiments.dispatch.rivals.catalogue import BATCH, WAIT

__all__ = ["EchoConnection"]

SLO = 0.1
"""s; a batch waits for a part of it."""


class EchoConnection:
    """A server that gives each input back at once."""

    address = "echo:1"

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:  # noqa: ARG002
        """Return the inputs."""
        return Reply(inputs, "1")

    async def ready(self, model: str, timeout: float) -> bool:  # noqa: ARG002
        """Say yes."""
        return True

    async def limits(self, model: str, timeout: float) -> ModelLimits:  # noqa: ARG002
        """Return the same as the rivals have."""
        return ModelLimits(max_batch=BATCH)

    async def metadata(self, model: str, timeout: float) -> Metadata:  # noqa: ARG002
        """Say nothing of the inputs."""
        return Metadata(model, ("1",), "", (), ())

    async def close(self) -> None:
        """There is nothing to close."""


async def main(port: int) -> None:
    """Answer until the process is ended."""
    config = DispatchConfig.model_validate(
        {
            "listen": {"grpc": f"127.0.0.1:{port}"},
            "options": {"deferral": WAIT / SLO},
            "sessions": [{"name": "echo", "slo_ms": SLO * 1e3, "backends": ["triton://echo:1/echo"]}],
        }
    )
    dispatcher = Dispatcher(config, lambda _: EchoConnection(), Metrics(), print)
    await dispatcher.start()
    async with Fronts(dispatcher, FrontConfig(grpc=("127.0.0.1", port))):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
