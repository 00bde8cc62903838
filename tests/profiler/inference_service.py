"""A tiny stand-in for an inference service: bytes in, bytes out, on an ephemeral port."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from tuner.adapters.connection.endpoint import Endpoint

WIRE = "tuner.adapters.triton.wire"
NOTHING = "constant:0.001"
"""A load that sends nothing as long as a test lasts."""


class InferenceService:
    """Answers every request at once, unless a test sets something else."""

    def __init__(self) -> None:
        self.address = ""
        self.delay = 0.0
        self.refuse_every = 0
        self.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
        self.requests = 0
        self.open = self.most_open = 0
        self.cancelled = 0
        self.last = b""
        self.shown: list[bytes] = []
        """The certificates that requests came with, in turn, each once; without TLS none."""
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()

    def endpoint(self, model: str = "mlp") -> Endpoint:
        """How the load generator reaches it."""
        return Endpoint(wire=WIRE, address=self.address, model=model)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Answer no request for the length of a block."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def stall(self, seconds: float) -> tuple[float, float]:
        """Hold all requests for a while; return a beginning and an end of it on the monotonic clock."""
        with self.held():
            begin = time.monotonic()
            time.sleep(seconds)
            return begin, time.monotonic()

    def infer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with self._lock:
            self.requests += 1
            number = self.requests
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        self.last = request
        for certificate in context.auth_context().get("x509_pem_cert", []):
            if self.shown[-1:] != [certificate]:
                self.shown.append(certificate)
        if self.refuse_every and number % self.refuse_every == 0:
            self.open -= 1
            context.abort(self.refusal, "queue full")
        self._open.wait()
        if self.delay:
            time.sleep(self.delay)
        with self._lock:
            self.open -= 1
            self.cancelled += not context.is_active()
        return b""

    def metadata(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.name != "mlp":
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' is not found"
            )
        answer = service_pb2.ModelMetadataResponse(name="mlp")
        answer.inputs.add(name="x", datatype="FP32", shape=[-1, 3, -1])
        return answer


@contextmanager
def serving(credentials: grpc.ServerCredentials | None = None) -> Iterator[InferenceService]:
    """Serve for the length of a block, in the clear or over TLS."""
    service = InferenceService()
    handlers = {
        "ModelInfer": grpc.unary_unary_rpc_method_handler(service.infer),
        "ModelMetadata": grpc.unary_unary_rpc_method_handler(
            service.metadata,
            request_deserializer=service_pb2.ModelMetadataRequest.FromString,
            response_serializer=service_pb2.ModelMetadataResponse.SerializeToString,
        ),
    }
    server = grpc.server(futures.ThreadPoolExecutor(64))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),)
    )
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    service.address = f"127.0.0.1:{port}"
    server.start()
    try:
        yield service
    finally:
        server.stop(0).wait()
