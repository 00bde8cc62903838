"""The gRPC server of the fronts."""

from __future__ import annotations

from typing import Any

import grpc

from tuner.adapters.connection.identity import Identity
from tuner.dispatch.front import inference, prediction
from tuner.dispatch.front.access import Access
from tuner.dispatch.front.calls import Calls
from tuner.dispatch.front.config import Address, FrontConfig
from tuner.dispatch.front.conversation import Conversation
from tuner.dispatch.front.inference import InferenceService
from tuner.dispatch.front.intake import Entrance, Intake
from tuner.dispatch.front.prediction import PredictionService
from tuner.dispatch.grant import CONVERSE
from tuner.errors import InvalidInput

__all__ = ["start_grpc"]

MOST_CALLS = 4_000
"""Calls at the same time, those that wait for their message among them."""
MOST_STREAMS = 1_000
"""Calls at the same time on one connection; its client keeps the others back."""
LARGEST_HEADERS = 16_384
"""Bytes of the headers of a call."""
ASK_AFTER = 60.0
"""Silence of a connection, s, after which its client is asked whether it is there."""
ANSWERS_WITHIN = 20.0
"""Time for its answer, s."""
NATIVE = {
    "io_threads": 1,
    "max_concurrent_streams": MOST_STREAMS,
    "max_metadata_size": LARGEST_HEADERS,
    "keepalive_time_ms": int(ASK_AFTER * 1000),
    "keepalive_timeout_ms": int(ANSWERS_WITHIN * 1000),
}
"""The same for the server in Rust."""


async def start_grpc(
    intake: Intake, config: FrontConfig, address: Address, access: Access
) -> tuple[Any, Address]:
    """Start the server; return it, and the address that it listens at.

    Raises:
        InvalidInput: The address cannot be used.
    """
    methods = InferenceService(intake).methods() | PredictionService(intake).methods()
    talks = {CONVERSE: lambda read, write: Conversation(intake).run(read, write)}
    free = inference.FREE | prediction.FREE
    entrance = Entrance(MOST_CALLS)  # grpc.aio's own limit costs a callback per call
    calls = Calls(methods, free, access, talks, entrance)
    server = grpc.aio.server(options=_options(config.largest_message))
    server.add_generic_rpc_handlers((calls,))
    host, port = address
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if config.grpc_server == "native":
        from tuner.dispatch.front.native_server import NativeServer

        try:
            native = NativeServer(place, calls, config.largest_message, NATIVE)
        except OSError:
            raise _unusable(place) from None
        await native.start(server)
        return native, (host, native.port)
    try:
        if access.identity is None:
            bound = server.add_insecure_port(place)
        else:
            bound = server.add_secure_port(place, _credentials(access, access.identity))
    except RuntimeError:
        raise _unusable(place) from None
    await server.start()
    return server, (host, bound)


def _unusable(place: str) -> InvalidInput:
    return InvalidInput("listen.grpc", f"{place} cannot be used: it is taken, or no address of ours")


def _options(largest: int) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # otherwise two servers could share one port without knowing it
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_send_message_length", largest),
        ("grpc.max_concurrent_streams", MOST_STREAMS),
        ("grpc.max_metadata_size", LARGEST_HEADERS),
        ("grpc.absolute_max_metadata_size", LARGEST_HEADERS),
        ("grpc.keepalive_time_ms", int(ASK_AFTER * 1000)),
        ("grpc.keepalive_timeout_ms", int(ANSWERS_WITHIN * 1000)),
        ("grpc.http2.ping_timeout_ms", int(ANSWERS_WITHIN * 1000)),  # gRPC 1.85 heeds this one only
        # Stock clients may ask every ten seconds; more often is an attack.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]


def _credentials(access: Access, identity: Identity) -> Any:
    """Return the credentials by which each new connection gets the identity of that moment."""
    given = identity

    def renewed() -> Any:
        """Return the identity if it is a new one. gRPC calls it at each handshake, one at a time."""
        nonlocal given
        present = access.identity
        if present is None or present is given:
            return None
        given = present
        return _configuration(present)

    certified = identity.authorities is not None
    return grpc.dynamic_ssl_server_credentials(_configuration(identity), renewed, certified)


def _configuration(identity: Identity) -> Any:
    pair = (identity.key, identity.certificate)
    return grpc.ssl_server_certificate_configuration([pair], identity.authorities)
