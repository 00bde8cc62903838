"""MLServer with its adaptive batching, for its own Python: ``mlserver_echo.py PORT FOLDER BATCH WAIT``."""

import asyncio
import sys

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.types import InferenceResponse, ResponseOutput

PORT, _, BATCH, WAIT = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])


class MLServerEcho(MLModel):
    """Gives each input back."""

    async def predict(self, payload):
        """Answer a batch."""
        outputs = [
            ResponseOutput(name=one.name, shape=one.shape, datatype=one.datatype, data=one.data)
            for one in payload.inputs
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)


async def main():
    """Answer until the process is ended; the model runs in this process, without workers of its own."""
    settings = Settings(
        host="127.0.0.1",
        grpc_port=PORT,
        http_port=PORT + 1,
        metrics_port=PORT + 2,
        parallel_workers=0,
        debug=False,
    )
    model = ModelSettings(name="echo", implementation=MLServerEcho, max_batch_size=BATCH, max_batch_time=WAIT)
    await MLServer(settings).start([model])


asyncio.run(main())
