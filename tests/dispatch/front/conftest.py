"""What the tests of the fronts share."""

from __future__ import annotations

from typing import cast

import pytest

from tuner.dispatch.front.config import GrpcServer


@pytest.fixture(scope="module", params=["grpcio", "native"])
def grpc_server(request: pytest.FixtureRequest) -> GrpcServer:
    """What speaks gRPC: clients must not see which."""
    if request.param == "native":
        pytest.importorskip("pygrpc_native", reason="needs pygrpc-native")
    return cast("GrpcServer", request.param)
