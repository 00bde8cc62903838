"""A real Triton over TLS that wants to know who asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.certificates import make_certificates
from tests.waiting import eventually
from tuner.adapters import connect
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.errors import Unreachable
from tuner.profiler.load.generator import LoadGenerator

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def server(certificates: Path) -> Iterator[EmbeddedTriton]:
    class Secured(EmbeddedTriton):
        def _command(self, folder: Path, prefix: str) -> list[str]:
            files = {"server-cert": "server.crt", "server-key": "server.key", "root-cert": "ca.crt"}
            flags = [f"--grpc-{name}={certificates / file}" for name, file in files.items()]
            return [*super()._command(folder, prefix), "--grpc-use-ssl=1", "--grpc-use-ssl-mutual=1", *flags]

    with Secured() as server:
        yield server


def test_it_is_watched_changed_and_loaded(server: EmbeddedTriton, certificates: Path) -> None:
    """Everything goes over TLS, requests of our own, too."""
    ca, cert, key = (certificates / name for name in ("ca.crt", "client.crt", "client.key"))
    backend = connect(f"{server.target}&tls=grpc&ca={ca}&cert={cert}&key={key}")
    assert isinstance(backend, TritonBackend)

    backend.apply(backend.space.default.replace(max_batch_size=4))
    with LoadGenerator(backend.endpoint(), "constant:30") as load:
        eventually(lambda: load.totals().answered > 10)

    assert load.totals().failed == 0
    assert backend.current()["max_batch_size"] == 4
    backend.restore()
    backend.close()


def test_in_the_clear_it_is_not_reached(server: EmbeddedTriton) -> None:
    """Nor without a certificate of our own."""
    with pytest.raises(Unreachable):
        connect(server.target)
