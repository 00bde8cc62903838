"""The dispatcher with the network in its own process: ``ours_alone.py PORT FOLDER BATCH WAIT NETWORK``.

No user runs it so: it stands beside MLServer, which has its model in its own process too.
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np
import onnxruntime
import yaml

from tuner.dispatch.backends.connection import ModelLimits
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.front import FrontConfig, Fronts
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.request import Metadata, Reply, Request, Tensor
from tuner.experiments.dispatch.rivals.ours import settings

__all__ = ["InnerConnection"]


class InnerConnection:
    """A server that is no process of its own.

    Args:
        network: File of the network that it executes.
        batch: Its largest batch.
    """

    address = probed_at = "inner:1"

    def __init__(self, network: str, batch: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._network = onnxruntime.InferenceSession(network, options)
        self._batch = batch

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:  # noqa: ARG002
        """Execute a batch."""
        (given,) = inputs
        rows = np.frombuffer(given.content, np.float32).reshape(given.shape)
        (found,) = self._network.run(None, {"input": rows})
        return Reply((Tensor("output", "FP32", found.shape, found.tobytes()),), "1")

    async def ready(self, model: str, timeout: float) -> bool:  # noqa: ARG002
        """Say yes."""
        return True

    async def limits(self, model: str, timeout: float) -> ModelLimits:  # noqa: ARG002
        """Return the largest batch."""
        return ModelLimits(max_batch=self._batch)

    async def metadata(self, model: str, timeout: float) -> Metadata:  # noqa: ARG002
        """Say nothing of the inputs."""
        return Metadata(model, ("1",), "", (), ())

    async def close(self) -> None:
        """There is nothing to close."""


async def main(port: int, batch: int, wait: float, network: str) -> None:
    """Answer until the process is ended."""
    file = settings(port, batch, wait, f"triton://{InnerConnection.address}/small")
    config = DispatchConfig.model_validate(yaml.safe_load(file))
    dispatcher = Dispatcher(config, lambda _: InnerConnection(network, batch), Metrics(), print)
    await dispatcher.start()
    async with Fronts(
        dispatcher, FrontConfig(grpc=("127.0.0.1", port), grpc_server=config.listen.grpc_server)
    ):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]))
