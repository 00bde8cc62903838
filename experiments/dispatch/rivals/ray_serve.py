"""Ray Serve with its adaptive batching, for its own Python: ``ray_serve.py PORT FOLDER BATCH WAIT``."""

import sys
import time

import ray
from ray import serve
from ray.serve.config import gRPCOptions
from tritonclient.grpc import service_pb2

PORT, FOLDER, BATCH, WAIT = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
SERVICER = "tritonclient.grpc.service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server"


@serve.deployment(max_ongoing_requests=1000)
class RayEcho:
    """Gives each input back."""

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WAIT)
    async def answer(self, questions):
        """Answer a batch."""
        answers = []
        for question in questions:
            answer = service_pb2.ModelInferResponse(model_name=question.model_name, id=question.id)
            for tensor in question.inputs:
                answer.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            answer.raw_output_contents.extend(question.raw_input_contents)
            answers.append(answer)
        return answers

    async def ModelInfer(self, question):  # noqa: N802 - as the protocol calls it
        """Answer one request, with others."""
        return await self.answer(question)


ray.init(_node_ip_address="127.0.0.1", _temp_dir=FOLDER, num_cpus=2, include_dashboard=False)
serve.start(grpc_options=gRPCOptions(port=PORT, grpc_servicer_functions=[SERVICER]))
serve.run(RayEcho.bind(), name="echo")
while True:
    time.sleep(60)
