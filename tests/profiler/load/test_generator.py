"""The load generator and its worker process against a tiny inference service."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
from tritonclient.grpc import service_pb2

from tests.profiler.inference_service import NOTHING, WIRE, InferenceService, serving
from tests.waiting import LONGEST, eventually
from tuner.adapters.connection.endpoint import Endpoint
from tuner.errors import InvalidInput, TunerError, Unreachable
from tuner.profiler.attachment import _generator
from tuner.profiler.load.generator import FAREWELL, LoadGenerator
from tuner.profiler.source import ClientSample
from tuner.setting import Load

TRIED = 1
"""Requests that are sent before anything is measured."""


@pytest.fixture
def service() -> Iterator[InferenceService]:
    with serving() as service:
        yield service


def test_every_request_is_answered_and_counted(service: InferenceService) -> None:
    """At the end all that was sent was answered, and the server saw as many."""
    with LoadGenerator(service.endpoint(), "constant:200", grace=LONGEST) as load:
        start = time.monotonic()
        time.sleep(0.5)
        sample = load.sample(start, start + 0.5)
    totals = load.totals()

    assert sample.intended.size == pytest.approx(100, abs=1)
    assert not np.isnan(sample.latency).any()
    assert (sample.latency >= sample.lateness).all()
    assert (np.diff(sample.intended) > 0).all()
    assert totals.sent == totals.answered == service.requests - TRIED
    assert (totals.failed, totals.outstanding) == (0, 0)


def test_this_machine_is_not_reached_through_a_proxy(
    service: InferenceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy of the environment would send the requests to its own machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)

    with LoadGenerator(service.endpoint(), NOTHING) as load:
        assert load.totals().failed == 0


class Moving:
    """A backend whose replicas come and go."""

    def __init__(self, service: InferenceService) -> None:
        self.services = [service]

    def endpoint(self) -> Endpoint:
        first, *others = [service.endpoint() for service in self.services]
        return replace(first, others=others)


def test_requests_follow_the_replicas(service: InferenceService) -> None:
    """With the next sample they go where the model is then; those that are under way are answered."""
    service.delay = 0.1
    backend: Any = Moving(service)
    with serving() as second, serving() as third:
        load = _generator(backend, Load(arrival="constant:100"), 0)
        assert load is not None
        with load:
            begun = time.monotonic()
            load.sample(begun, begun + 0.1)
            backend.services = [second, third]
            moved = load.sample(begun, begun + 0.1)
            eventually(lambda: second.requests > 5)
    totals = load.totals()

    assert moved.failed == totals.failed == service.cancelled == 0
    assert totals.sent == totals.answered == service.requests - TRIED + second.requests + third.requests
    assert abs(second.requests - third.requests) <= 1


def test_each_replica_is_asked_for_its_own_version(service: InferenceService) -> None:
    """As `version=1,2` names them for a list of hosts; the others do not get the version of the first."""
    with serving() as second:
        other = replace(second.endpoint(), options={"version": "2"})
        endpoint = replace(service.endpoint(), options={"version": "1"}, others=[other])
        with LoadGenerator(endpoint, "constant:100"):
            eventually(lambda: service.requests > TRIED + 1 and second.requests > 1)
        asked = [service_pb2.ModelInferRequest.FromString(one.last) for one in (service, second)]

    assert [request.model_version for request in asked] == ["1", "2"]
    assert asked[0].raw_input_contents == asked[1].raw_input_contents


def test_shapes_are_of_requests_that_are_sent(service: InferenceService) -> None:
    """Without a rate they would be ignored, and whoever gave them would think that latencies are measured."""
    backend: Any = Moving(service)

    assert _generator(backend, Load(), 0) is None
    with pytest.raises(InvalidInput, match="--shape: means nothing without requests of our own; add --rate"):
        _generator(backend, Load(shapes={"x": (4,)}), 0)


def test_files_in_the_folder_are_no_modules(
    service: InferenceService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A `numpy.py` where `tuner run --rate` was started ended the load generator; `tuner` never read it."""
    (tmp_path / "numpy.py").write_text("raise SystemExit('not the numpy that was meant')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])

    with LoadGenerator(service.endpoint(), "constant:100") as load:
        sample = load.sample(time.monotonic(), time.monotonic() + 0.05)

    assert sample.failed == 0


def test_request_is_made_from_the_model_metadata(service: InferenceService) -> None:
    """One row of random data in the shape that was asked for."""
    with LoadGenerator(service.endpoint(), "constant:100", shapes={"x": (3, 5)}) as load:
        load.sample(time.monotonic(), time.monotonic() + 0.05)
    request = service_pb2.ModelInferRequest.FromString(service.last)

    assert request.model_name == "mlp"
    assert list(request.inputs[0].shape) == [1, 3, 5]
    assert len(request.raw_input_contents[0]) == 4 * 15


def test_failures_are_counted_by_status(service: InferenceService) -> None:
    """Every fourth request is refused: a quarter failed, and the reason is known."""
    service.refuse_every = 4
    with LoadGenerator(service.endpoint(), "constant:200", grace=LONGEST) as load:
        start = time.monotonic()
        time.sleep(0.4)
        sample = load.sample(start, start + 0.4)
    totals = load.totals()

    assert sample.failed == np.isnan(sample.latency).sum() == pytest.approx(20, abs=1)
    assert totals.reasons == {"resource_exhausted": totals.failed}
    assert totals.sent == totals.answered + totals.failed


def test_requests_without_an_answer_are_lost_but_never_cancelled(service: InferenceService) -> None:
    """A server slower than the timeout loses every request; none is cancelled."""
    service.delay = 0.4
    with LoadGenerator(service.endpoint(), "constant:50", timeout=0.1, grace=LONGEST) as load:
        start = time.monotonic()
        sample = load.sample(start, start + 0.2)
        load.stop(drain=LONGEST)
    totals = load.totals()

    assert sample.failed == sample.intended.size == pytest.approx(10, abs=1)
    assert totals.reasons == {"deadline_exceeded": totals.sent}
    assert service.cancelled == 0
    assert service.requests == totals.sent + TRIED


def test_requests_open_when_it_stops_are_accounted_for(service: InferenceService) -> None:
    """Stopping without patience cancels what is open, and says so."""
    with LoadGenerator(service.endpoint(), NOTHING, timeout=LONGEST) as load, service.held():
        load.set_arrival("constant:50")
        eventually(lambda: load.totals().sent > 5)
        load.stop(drain=0.0)
    totals = load.totals()

    assert totals.sent > 5
    assert totals.reasons == {"cancelled": totals.sent}
    assert totals.outstanding == 0


def test_outstanding_requests_are_neither_answered_nor_failed(service: InferenceService) -> None:
    """What has not come within the grace is NaN but no failure."""
    with LoadGenerator(service.endpoint(), NOTHING, timeout=LONGEST, grace=0.05) as load:
        begun = time.monotonic()
        with service.held():
            load.set_arrival("constant:20")
            eventually(lambda: load.totals().sent > 2)
            sample = load.sample(begun, time.monotonic())
            totals = load.totals()
        load.stop(drain=LONGEST)

    assert sample.intended.size > 2
    assert np.isnan(sample.latency).all()
    assert (sample.failed, totals.failed) == (0, 0)
    assert totals.outstanding == totals.sent
    assert load.totals().answered == load.totals().sent


def test_a_stall_shows_in_the_latency_of_requests_intended_during_it(service: InferenceService) -> None:
    """Open loop: a server that stalls 200 ms delays each request by what was left of the stall."""
    with LoadGenerator(service.endpoint(), "constant:200", grace=LONGEST) as load:
        time.sleep(0.1)
        begin, end = service.stall(0.2)
        sample = load.sample(begin, end)

    assert sample.intended.size == pytest.approx(200 * (end - begin), abs=2)
    assert (sample.latency >= end - sample.intended).all()


def latest(load: LoadGenerator) -> ClientSample:
    """The requests of the last 0.3 s."""
    now = time.monotonic()
    return load.sample(now - 0.3, now)


def test_rate_can_be_changed_while_it_runs(service: InferenceService) -> None:
    """From the change on the new rate is sent, and other processes can be followed."""
    with LoadGenerator(service.endpoint(), "constant:50") as load:
        load.set_rate(400)
        eventually(lambda: np.diff(latest(load).intended)[-20:] == pytest.approx([1 / 400] * 20))
        start = time.monotonic()
        faster = load.sample(start, start + 0.3)
        load.set_arrival("poisson:20")
        eventually(lambda: 0 < latest(load).intended.size < 25)
        start = time.monotonic()
        slower = load.sample(start, start + 0.3)

    assert faster.intended.size == pytest.approx(120, abs=2)
    assert slower.intended.size < 25
    assert str(load.arrival) == "poisson:20"


def test_unusable_rate_is_refused_and_the_load_goes_on(service: InferenceService) -> None:
    """A mistake in a command reaches the caller, not the worker."""
    with LoadGenerator(service.endpoint(), "constant:100") as load:
        with pytest.raises(InvalidInput, match="a rate of -3"):
            load.set_rate(-3)
        start = time.monotonic()

        assert load.sample(start, start + 0.1).intended.size > 5


def test_unreachable_server_is_a_clear_error() -> None:
    """The address and what to check are named."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unreachable, match=f"{address}.*is the server running"):
            LoadGenerator(Endpoint(wire=WIRE, address=address, model="mlp"), "poisson:10", patience=0.3)


def test_unknown_model_is_a_clear_error(service: InferenceService) -> None:
    """The model is named."""
    with pytest.raises(InvalidInput, match="does not serve 'resnet'"):
        LoadGenerator(service.endpoint("resnet"), "poisson:10")


def test_shape_that_does_not_fit_is_a_clear_error(service: InferenceService) -> None:
    """The input, the wanted and the model's shape are named."""
    with pytest.raises(InvalidInput, match=r"shape x: \[4, 5\] does not fit"):
        LoadGenerator(service.endpoint(), "poisson:10", shapes={"x": (4, 5)})


def test_a_server_that_refuses_requests_like_ours_is_a_clear_error(service: InferenceService) -> None:
    """Told before anything is measured: all latencies would count as broken, and be tuned in vain."""
    service.refuse_every, service.refusal = 1, grpc.StatusCode.UNIMPLEMENTED

    with pytest.raises(InvalidInput, match="--rate: the server refuses requests like ours: queue full"):
        LoadGenerator(service.endpoint(), "poisson:10")


def test_killed_worker_is_a_clear_error(service: InferenceService) -> None:
    """Sampling a dead worker raises instead of waiting."""
    with LoadGenerator(service.endpoint(), "constant:100") as load:
        os.kill(load.pid, signal.SIGKILL)
        with pytest.raises(TunerError, match="load generator has ended"):
            load.sample(time.monotonic(), time.monotonic() + 0.1)


def test_worker_dies_with_its_parent(service: InferenceService) -> None:
    """A parent that is killed leaves no worker behind."""
    script = (
        "import sys, time\n"
        "from tuner.profiler import LoadGenerator\n"
        "from tuner.adapters.connection.endpoint import Endpoint\n"
        f"load = LoadGenerator({service.endpoint()!r}, 'poisson:50')\n"
        "print(load.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    gone, alive = psutil.wait_procs([worker], timeout=LONGEST)

    assert (len(gone), alive) == (1, [])


def test_a_worker_that_stands_still_may_still_report(
    service: InferenceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine it may for some seconds; nothing of what it sent is lost."""
    load = LoadGenerator(service.endpoint(), "constant:100")
    eventually(lambda: load.totals().sent)
    waited, wait = list[float](), load._process.wait

    def stand_still(timeout: float) -> int:
        waited.append(timeout)
        os.kill(load.pid, signal.SIGCONT)
        return wait(timeout)

    monkeypatch.setattr(load._process, "wait", stand_still)
    os.kill(load.pid, signal.SIGSTOP)
    load.stop(drain=60.0)

    assert waited == [60.0 + FAREWELL]
    assert load.totals().sent == service.requests - TRIED


def test_stop_can_be_called_twice(service: InferenceService) -> None:
    """The second call does nothing."""
    load = LoadGenerator(service.endpoint(), "poisson:10")
    load.stop()
    load.stop()

    assert not psutil.pid_exists(load.pid)
