"""MLServer with its adaptive batching: ``mlserver_small.py PORT FOLDER BATCH WAIT NETWORK``.

It runs in an environment of its own. The model is in the process of the server (``parallel_workers=0``),
which saves the way to a worker; the event loop is uvloop's, as with ``mlserver start``; access logs and
metrics are off.
"""

import asyncio
import sys

import numpy as np
import onnxruntime
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.types import InferenceResponse, ResponseOutput
from mlserver.utils import install_uvloop_event_loop

PORT, BATCH, WAIT, NETWORK = int(sys.argv[1]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]


class MLServerSmall(MLModel):
    """The network, on the processor."""

    async def load(self):
        """Read the network."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._network = onnxruntime.InferenceSession(NETWORK, options)
        return True

    async def predict(self, payload):
        """Answer a batch."""
        (given,) = payload.inputs
        rows = np.asarray(given.data.root, np.float32).reshape(given.shape)
        (found,) = self._network.run(None, {"input": rows})
        output = ResponseOutput(
            name="output", shape=list(found.shape), datatype="FP32", data=found.ravel().tolist()
        )
        return InferenceResponse(model_name=self.name, outputs=[output])


async def main():
    """Answer until the process is ended."""
    settings = Settings(
        host="127.0.0.1",
        grpc_port=PORT,
        http_port=PORT + 1,
        metrics_endpoint=None,
        parallel_workers=0,
        debug=False,
    )
    model = ModelSettings(
        name="small", implementation=MLServerSmall, max_batch_size=BATCH, max_batch_time=WAIT
    )
    await MLServer(settings).start([model])


install_uvloop_event_loop()
asyncio.run(main())
