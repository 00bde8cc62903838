"""Ray Serve with its batching: ``ray_small.py PORT FOLDER BATCH WAIT NETWORK``.

It runs in an environment of its own, whose uvloop it uses by itself; its access log is off. It is asked over
gRPC: with the settings for high throughput, HAProxy hands each call straight to the process that has the
model; without them, a proxy in Python does.
"""

import sys
import time

import numpy as np
import onnxruntime
import ray
from ray import serve
from ray.serve.config import gRPCOptions
from ray.serve.schema import LoggingConfig
from tritonclient.grpc import service_pb2

PORT, FOLDER, BATCH, WAIT, NETWORK = *sys.argv[1:3], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
SERVICER = "tritonclient.grpc.service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server"
MEMORY = 100 * 1024**2
"""Bytes of its store of objects, which nothing here needs."""


@serve.deployment(max_ongoing_requests=1000)
class RaySmall:
    """The network, on the processor."""

    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._network = onnxruntime.InferenceSession(NETWORK, options)

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WAIT)
    async def answer(self, questions):
        """Answer a batch."""
        rows = np.frombuffer(b"".join(one.raw_input_contents[0] for one in questions), np.float32)
        (found,) = self._network.run(None, {"input": rows.reshape(len(questions), -1)})
        answers = []
        for question, row in zip(questions, found, strict=True):
            answer = service_pb2.ModelInferResponse(model_name=question.model_name, id=question.id)
            answer.outputs.add(name="output", datatype="FP32", shape=(1, len(row)))
            answer.raw_output_contents.append(row.tobytes())
            answers.append(answer)
        return answers

    async def ModelInfer(self, question):  # noqa: N802 - as the protocol calls it
        """Answer one request, with others."""
        return await self.answer(question)


ray.init(
    _node_ip_address="127.0.0.1",
    _temp_dir=FOLDER,
    num_cpus=2,
    include_dashboard=False,
    object_store_memory=MEMORY,
)
serve.start(grpc_options=gRPCOptions(port=int(PORT), grpc_servicer_functions=[SERVICER]))
serve.run(RaySmall.bind(), name="small", logging_config=LoggingConfig(enable_access_log=False))
while True:
    time.sleep(60)
