"""A real Triton that polls its repository, changed by the file that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.adapters.triton.test_backend import THREADS
from tests.adapters.waiting import counted
from tests.conftest import sender
from tests.waiting import eventually
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.client import TritonClient
from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions
from tuner.adapters.triton.repository_file import RepositoryFile
from tuner.adapters.triton.target import parse_target
from tuner.errors import InvalidInput, ReadOnly, Refused
from tuner.knobs import Configuration
from tuner.testing.backend import BackendContract, Traffic

pytestmark = pytest.mark.triton

REFUSAL = 10.0
"""How long to wait for a server that will not take a file, s. One that takes it may need more."""
TURN = '\nparameters { key: "turn" value: { string_value: "%s" } }'
"""What makes the file another for each test."""


@pytest.fixture(scope="module")
def polling() -> Iterator[EmbeddedTriton]:
    with EmbeddedTriton(options=TritonOptions(poll=1)) as server:
        yield server


def models(server: EmbeddedTriton) -> Path:
    """The folder of its models."""
    assert server._folder is not None
    return server._folder / "models"


@pytest.fixture
def file(polling: EmbeddedTriton, request: pytest.FixtureRequest) -> Path:
    """The model's file, which the server has read: of one that was put back, too, it counts anew."""
    file, turn = models(polling) / "mlp" / "config.pbtxt", request.node.name
    file.write_text(file.read_text().partition(TURN.partition("%")[0])[0] + TURN % turn)
    with closing(TritonClient(parse_target(polling.target))) as client:
        eventually(lambda: client.config()["parameters"].get("turn") == {"string_value": turn})
    return file


def has_read_what_was_put_back(server: EmbeddedTriton) -> bool:
    """Whether it has loaded the model since it last could not."""
    log = (server.folder / "server.log").read_text()
    return log.rfind("successfully loaded 'mlp'") > log.rfind("failed to load 'mlp'")


@pytest.fixture
def target(polling: EmbeddedTriton) -> str:
    return f"{polling.target}&repository={models(polling)}"


@pytest.fixture
def backend(target: str, file: Path) -> Iterator[TritonBackend]:
    backend = TritonBackend(target, {THREADS: (1, 2, 999)}, settle=0.0)
    yield backend
    backend.close()
    another = TritonBackend(target, {THREADS: (1, 2, 999)})
    changed, found = another._control, backend._control
    assert isinstance(changed, RepositoryFile)
    assert isinstance(found, RepositoryFile)
    changed._found, changed._original = found._found, found._original
    another.original = backend.original
    another.restore()
    another.close()


class TestContract(BackendContract):
    """It is held to all that a server in explicit mode is."""

    below = -1.0

    @pytest.fixture
    def backend(self, backend: TritonBackend) -> TritonBackend:
        return backend

    @pytest.fixture
    def traffic(self, backend: TritonBackend, polling: EmbeddedTriton) -> Traffic:
        def send(count: int) -> None:
            eventually(lambda: has_read_what_was_put_back(polling))
            wanted = backend.counters().requests + count
            sender(polling.target)(count)
            counted(backend, wanted)

        return send

    @pytest.fixture
    def refused(self, backend: TritonBackend) -> Configuration:
        backend._load_timeout = REFUSAL
        return backend.current().replace(**{THREADS: 999})


def test_the_operators_file_comes_back(backend: TritonBackend, file: Path) -> None:
    """Comments and rights, to the letter."""
    control = backend._control
    assert isinstance(control, RepositoryFile)
    assert control._found is not None
    before = control._found = "# mine\n" + control._found

    backend.apply(backend.space.default.replace(max_batch_size=4, max_queue_delay=0.002))
    assert "max_queue_delay_microseconds: 2000" in file.read_text()
    backend.restore()

    assert file.read_text() == before


def test_a_file_that_is_not_taken_is_put_back(backend: TritonBackend, file: Path) -> None:
    """The server does not say that it refuses; after a while the old file is there again."""
    before = file.read_text()
    backend._load_timeout = REFUSAL

    with pytest.raises(Refused, match=r"did not take.*old configuration still serves"):
        backend.apply(backend.space.default.replace(**{THREADS: 999}))

    assert file.read_text() == before


def test_without_the_folder(polling: EmbeddedTriton) -> None:
    """The note says what would make it tunable."""
    backend = TritonBackend(polling.target)

    with pytest.raises(ReadOnly, match="repository="):
        backend.apply(backend.space.default.replace(max_batch_size=4))
    backend.close()


def test_another_folder(polling: EmbeddedTriton, tmp_path: Path) -> None:
    """A folder without the model is a mistake."""
    with pytest.raises(InvalidInput, match="has no model 'mlp'"):
        TritonBackend(f"{polling.target}&repository={tmp_path}")
