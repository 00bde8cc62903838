"""An ensemble of two models on a real Triton."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as tritongrpc

from tests.adapters.waiting import counted
from tuner.adapters import Backend, connect
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.adapters.triton.ensemble import EnsembleBackend
from tuner.errors import InvalidInput, Refused
from tuner.knobs import Configuration
from tuner.testing.backend import BackendContract, Traffic

pytestmark = pytest.mark.triton

ENSEMBLE = """
name: "both"
platform: "ensemble"
max_batch_size: 16
input [{ name: "input" data_type: TYPE_FP32 dims: [ 256 ] }]
output [{ name: "output" data_type: TYPE_FP32 dims: [ 256 ] }]
ensemble_scheduling { step [
  { model_name: "mlp" model_version: -1
    input_map { key: "input" value: "input" } output_map { key: "output" value: "between" } },
  { model_name: "mlp2" model_version: -1
    input_map { key: "input" value: "between" } output_map { key: "output" value: "output" } } ] }
"""
THREADS = "mlp2.parameters.intra_op_threads"


class Server(EmbeddedTriton):
    """Serves mlp twice, and both together."""

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        models = folder / "models"
        shutil.copytree(models / "mlp", models / "mlp2", symlinks=True)
        file = models / "mlp2" / "config.pbtxt"
        file.write_text(file.read_text().replace('"mlp"', '"mlp2"'))
        (models / "both" / "1").mkdir(parents=True)
        (models / "both" / "config.pbtxt").write_text(ENSEMBLE)
        self.models = ("mlp", "mlp2", "both")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def target(server: Server) -> str:
    return server.target.replace("/mlp?", "/both?")


@pytest.fixture
def backend(target: str) -> Iterator[Backend]:
    opened = connect(target, {THREADS: (1.0, 2.0, 999.0)})
    yield opened
    with_defaults = opened.space.default
    opened.close()
    another = connect(target, {THREADS: (1.0, 2.0, 999.0)})
    another.apply(with_defaults)
    another.close()


def send(server: Server, count: int) -> None:
    data = tritongrpc.InferInput("input", [1, 256], "FP32")
    data.set_data_from_numpy(np.zeros((1, 256), np.float32))
    with tritongrpc.InferenceServerClient(f"127.0.0.1:{server.ports.grpc}") as client:
        for _ in range(count):
            client.infer("both", [data])


class TestContract(BackendContract):
    """It is held to all that one model is."""

    below = -1.0

    @pytest.fixture
    def backend(self, backend: Backend) -> Backend:
        return backend

    @pytest.fixture
    def traffic(self, backend: Backend, server: Server) -> Traffic:
        def send_and_wait(count: int) -> None:
            wanted = backend.counters().requests + count
            send(server, count)
            counted(backend, wanted)

        return send_and_wait

    @pytest.fixture
    def refused(self, backend: Backend) -> Configuration:
        return backend.current().replace(
            **{THREADS: 999, "mlp.max_queue_delay": 0.002, "mlp.max_batch_size": 64}
        )


def test_knobs_of_its_models(backend: Backend) -> None:
    """Each with its model's name; no batch limit below the ensemble's own."""
    knobs = {knob.name: knob.grid for knob in backend.space.knobs}

    assert isinstance(backend, EnsembleBackend)
    assert knobs["mlp.max_batch_size"] == knobs["mlp2.max_batch_size"] == (1, 16, 32, 64)
    assert {"mlp.max_queue_delay", "mlp2.instances", THREADS} <= set(knobs)
    assert "an ensemble of mlp, mlp2" in backend.describe().notes
    assert backend.describe().model == "both"


def test_if_one_refuses_all_go_back(backend: Backend, server: Server) -> None:
    """Also those that had been changed before."""
    before = backend.current()

    with pytest.raises(Refused, match="all models of the ensemble run as before"):
        backend.apply(before.replace(**{"mlp.max_batch_size": 16, THREADS: 999}))

    assert backend.current() == before
    send(server, 1)


def test_a_model_that_is_tuned_by_itself_keeps_the_ensemble_in_service(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch limit below the ensemble's is not set, whatever the grid; one that is loaded is taken back."""
    with closing(connect(server.target, {"max_batch_size": (8.0, 64.0)})) as model:
        before = model.current()
        smaller = before.replace(max_batch_size=8)

        with pytest.raises(InvalidInput, match="8 is below 16, the max_batch_size of an ensemble"):
            model.apply(smaller)
        monkeypatch.setattr(TritonBackend, "_check_ensembles", lambda *_: None)
        with pytest.raises(Refused, match="no longer serves both; the old configuration was put back"):
            model.apply(smaller)

        assert model.current() == before
    send(server, 1)


@pytest.mark.parametrize(
    ("grids", "words"),
    [
        ({"mlp.max_batch_size": (1.0, 8.0)}, "8 is below 16, the max_batch_size of an ensemble"),
        ({"bert.instances": (1.0,)}, "have no such knob"),
        ({"max_batch_size": (1.0,)}, "have no such knob"),
    ],
)
def test_grids_that_cannot_be(target: str, grids: dict[str, tuple[float, ...]], words: str) -> None:
    """The error comes before anything is changed."""
    with pytest.raises(InvalidInput, match=words):
        connect(target, grids)


def test_changes_under_load(backend: Backend, server: Server) -> None:
    """The ensemble goes on serving while its models are changed."""
    stop, failures = threading.Event(), []

    def keep_sending() -> None:
        while not stop.is_set():
            try:
                send(server, 1)
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=keep_sending)
    thread.start()
    try:
        for delay in (0.001, 0.002, 0.0):
            changes = {"mlp.max_batch_size": 16, "mlp.max_queue_delay": delay, "mlp2.instances": 2}
            backend.apply(backend.space.default.replace(**changes))
            time.sleep(0.2)
    finally:
        stop.set()
        thread.join()

    assert failures == []
    assert backend.counters().failures == 0
