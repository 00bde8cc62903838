"""The adapter against a real Triton server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from unittest.mock import Mock

import pytest
import tenacity

from tests.adapters.waiting import counted
from tests.conftest import sender
from tests.waiting import eventually
from tuner.adapters import connect
from tuner.adapters.metrics.page import MetricsPage
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.client import TritonClient
from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions
from tuner.errors import InvalidInput, ReadOnly, Refused, TimedOut, UnknownModel, Unreachable
from tuner.knobs import ApplyCost, Configuration
from tuner.testing.backend import BackendContract, Traffic, assert_grown

pytestmark = pytest.mark.triton

THREADS = "parameters.intra_op_threads"


@pytest.fixture
def backend(embedded: EmbeddedTriton) -> Iterator[TritonBackend]:
    """A backend whose fourth knob can be set to what the model refuses."""
    backend = TritonBackend(embedded.target, {THREADS: (1, 2, 999)}, settle=0.0)
    yield backend
    with closing(
        TritonBackend(embedded.target, {THREADS: (1, 2, 999)})
    ) as another:  # the first may be closed
        another.original = backend.original
        another.restore()
    backend.close()


@pytest.fixture
def traffic(backend: TritonBackend, embedded: EmbeddedTriton) -> Traffic:
    send = sender(embedded.target)

    def send_and_wait(count: int) -> None:
        before = backend.counters().requests
        send(count)
        counted(backend, before + count)

    return send_and_wait


class TestContract(BackendContract):
    """The real server is held to all of it."""

    below = -1.0

    @pytest.fixture
    def backend(self, backend: TritonBackend) -> TritonBackend:
        return backend

    @pytest.fixture
    def traffic(self, traffic: Traffic) -> Traffic:
        return traffic

    @pytest.fixture
    def refused(self, backend: TritonBackend) -> Configuration:
        return backend.current().replace(**{THREADS: 999})


def test_description(backend: TritonBackend, embedded: EmbeddedTriton) -> None:
    """The real server's name, version and process; it can be written and exports quantiles."""
    description = backend.describe()

    assert (description.server, description.version, description.model) == ("triton", "2.51.0", "mlp")
    assert description.writable
    assert description.quantiles
    assert description.processes == (embedded.pid,)
    assert description.notes == ()


def test_whole_configuration_is_kept(backend: TritonBackend) -> None:
    """Only the fields of the knobs change, and restoring brings back every byte."""
    original = backend._client.config()

    backend.apply(backend.space.default.replace(max_batch_size=8, max_queue_delay=0.002, instances=2))
    changed = backend._client.config()
    report = backend.restore()

    assert report.changed
    assert changed.pop("dynamic_batching") == {
        "preferred_batch_size": [8],
        "max_queue_delay_microseconds": "2000",
    }
    assert changed.pop("max_batch_size") == 8
    assert changed["parameters"].pop("servetune_max_batch_size") == {"string_value": "64"}
    assert changed["instance_group"][0].pop("count") == 2
    expected = {key: value for key, value in original.items() if key != "max_batch_size"}
    changed["instance_group"][0]["count"] = 1
    assert changed == expected
    assert backend._client.config() == original
    assert not backend.restore().changed


def test_the_models_own_limit_survives_the_tuner(embedded: EmbeddedTriton, backend: TritonBackend) -> None:
    """A later run still knows it, though the server runs a lower one: its grid is not cut short."""
    backend.apply(backend.space.default.replace(max_batch_size=2))

    with closing(TritonBackend(embedded.target)) as later:
        grid = later.space.knobs[0].grid
        later.apply(later.space.default)
        limit = later._client.config()["max_batch_size"]

    assert max(grid) == 32
    assert limit == 64


def test_delay_without_batching_changes_nothing(backend: TritonBackend) -> None:
    """Configurations that differ in a delay that has no effect are equal."""
    report = backend.apply(backend.space.default.replace(max_queue_delay=0.005))

    assert not report.changed
    assert report.configuration["max_queue_delay"] == 0


def test_instances_change_by_a_reload(backend: TritonBackend) -> None:
    """In place Triton was seen to freeze under overload: a mark comes and goes and makes it reload."""
    default = backend.space.default

    up = backend.apply(default.replace(instances=2))
    marked = backend._client.config()["parameters"]
    down = backend.apply(default)

    assert (up.cost, down.cost) == (ApplyCost.RELOAD, ApplyCost.RELOAD)
    assert "servetune_reload" in marked
    assert backend._client.config() == backend.original


def test_only_what_waits_when_new_instances_take_over_is_affected(backend: TritonBackend) -> None:
    """The old ones serve until then; here nobody waits, and a reload of 100 ms is charged to nobody."""
    report = backend.apply(backend.space.default.replace(max_batch_size=8))

    assert report.cost is ApplyCost.RELOAD
    assert report.affected == 0.0
    assert backend.apply(backend.space.default.replace(max_batch_size=8)).affected is None


def test_restoring_only_the_instances_is_exact(backend: TritonBackend) -> None:
    """The way back is a reload, too, and leaves no mark behind."""
    backend.apply(backend.space.default.replace(instances=2))

    backend.restore()

    assert backend._client.config() == backend.original


def test_quantiles_and_pending(backend: TritonBackend, traffic: Traffic) -> None:
    """The server's own quantiles come in seconds."""
    traffic(20)

    counters = backend.counters()

    assert 0 < counters.quantiles[0.5] <= counters.quantiles[0.99] < 10
    assert counters.pending == 0


def test_large_requests_set_a_lower_limit(
    backend: TritonBackend, embedded: EmbeddedTriton, traffic: Traffic
) -> None:
    """No batch limit below the rows that clients may send in one request; no batching is still possible."""
    sender(embedded.target)(3, 6)
    counted(backend, 3)

    with pytest.raises(InvalidInput, match="below 6, the rows that clients may send"):
        backend.apply(backend.space.default.replace(max_batch_size=4))

    backend.apply(backend.space.default.replace(max_batch_size=8))
    sender(embedded.target)(1, 6)
    backend.apply(backend.space.default)


def test_refusal_carries_the_servers_words(backend: TritonBackend, traffic: Traffic) -> None:
    """The operator reads why; the old configuration serves."""
    with pytest.raises(Refused, match=r"intra_op_threads=999 .*still serves"):
        backend.apply(backend.space.default.replace(**{THREADS: 999}))

    traffic(1)


def test_late_load_is_verified_by_reading_back(
    embedded: EmbeddedTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the call times out but the change comes about, that is success."""
    backend = TritonBackend(embedded.target, settle=0.0)
    load = backend._client.load
    loading: list[threading.Thread] = []

    def late(config: Mapping[str, Any], timeout: float) -> None:
        loading.append(threading.Thread(target=load, args=(config, timeout)))
        loading[-1].start()
        raise TimedOut("no answer in time")

    monkeypatch.setattr(backend._client, "load", late)

    report = backend.apply(backend.space.default.replace(max_batch_size=2))

    assert report.configuration["max_batch_size"] == 2
    assert len(loading) == 1
    loading[0].join()
    monkeypatch.undo()
    backend.restore()
    backend.close()


def test_reading_costs_little(backend: TritonBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading is one question for the statistics, and the page of metrics once."""
    asked, fetch, pages = Mock(wraps=backend._client._connection), MetricsPage.fetch, []

    def fetched(page: MetricsPage, timeout: float) -> str:
        pages.append(page.path)
        return fetch(page, timeout)

    monkeypatch.setattr(TritonClient, "_connection", asked)
    monkeypatch.setattr(MetricsPage, "fetch", fetched)

    for _ in range(5):
        backend.counters()

    assert [call[0] for call in asked.method_calls] == ["get_inference_statistics"] * 5
    assert pages == ["/metrics"] * 5


def test_server_in_default_mode(fixed_server: EmbeddedTriton) -> None:
    """Observing works, changing is refused with the flag to set, and quantiles name theirs."""
    backend = connect(fixed_server.target)
    description = backend.describe()

    with pytest.raises(ReadOnly, match="--model-control-mode=explicit"):
        backend.apply(backend.space.default.replace(max_batch_size=4))

    assert not description.writable
    assert not description.quantiles
    assert "--model-control-mode=explicit" in description.notes[0]
    assert "summary_latencies=true" in description.notes[1]
    assert backend.counters().requests == 0
    backend.close()


def test_metrics_off(embedded: EmbeddedTriton) -> None:
    """Without metrics there are counts and means, no quantiles."""
    backend = connect(embedded.target.split("?")[0] + "?metrics=off")
    sender(embedded.target)(3)

    counters = counted(backend, 3)

    assert counters.quantiles == {}
    assert counters.pending is None
    assert any("metrics are off" in note for note in backend.describe().notes)
    backend.close()


def test_unknown_model(embedded: EmbeddedTriton) -> None:
    """The models that are loaded are listed."""
    with pytest.raises(UnknownModel, match="'bert'; models loaded: mlp"):
        connect(embedded.target.replace("/mlp", "/bert"))


def test_unknown_version(embedded: EmbeddedTriton) -> None:
    """A version that is not served is like a model that is not."""
    with pytest.raises(UnknownModel):
        connect(embedded.target + "&version=7")


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_unreachable_server() -> None:
    """Nobody listens."""
    with pytest.raises(Unreachable, match="Triton running"):
        connect(f"triton://127.0.0.1:{closed_port()}/mlp")


def test_host_without_address() -> None:
    """A name that means nothing."""
    with pytest.raises(Unreachable):
        connect("triton://no-such-host.invalid/mlp")


def test_silent_server() -> None:
    """Somebody listens and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"triton://127.0.0.1:{server.getsockname()[1]}/mlp"
        with pytest.raises(Unreachable):
            TritonBackend(target, timeout=0.2)


def test_http_port_in_the_place_of_grpc(embedded: EmbeddedTriton) -> None:
    """The usual mix-up of 8000 and 8001."""
    with pytest.raises(Unreachable, match="gRPC port"):
        connect(f"triton://127.0.0.1:{embedded.ports.http}/mlp")


def test_metrics_port_closed(embedded: EmbeddedTriton) -> None:
    """Port, option and flag are named."""
    target = embedded.target.split("?")[0] + f"?metrics={closed_port()}"

    with pytest.raises(Unreachable, match=r"metrics port.*--allow-metrics=true.*metrics="):
        connect(target)


def test_http_port_in_the_place_of_metrics(embedded: EmbeddedTriton) -> None:
    """A port that answers, but with something else."""
    target = embedded.target.split("?")[0] + f"?metrics={embedded.ports.http}"

    with pytest.raises(InvalidInput, match="metrics"):
        connect(target)


def test_server_without_metrics() -> None:
    """Its target says so, and it can be tuned by means."""
    with EmbeddedTriton(options=TritonOptions(metrics=False)) as server:
        backend = connect(server.target)

        assert server.target.endswith("?metrics=off")
        assert backend.describe().writable
        backend.close()


def test_server_dies_and_returns() -> None:
    """While it is away every call says so; when it is back, totals go on and changes work."""
    with EmbeddedTriton() as server:
        backend = TritonBackend(server.target, settle=0.0, timeout=10.0)
        send = sender(server.target)
        send(5)
        before = counted(backend, 5)
        server.kill()

        with pytest.raises((Unreachable, TimedOut)):
            backend.counters()
        with pytest.raises((Unreachable, TimedOut)):
            backend.apply(backend.space.default.replace(max_batch_size=2))

        server.restart()
        reconnect = tenacity.Retrying(
            stop=tenacity.stop_after_delay(60),
            wait=tenacity.wait_fixed(0.05),
            retry=tenacity.retry_if_exception_type((Unreachable, TimedOut)),
        )
        reconnect(backend.counters)
        send(4)
        after = counted(backend, 9)
        assert_grown(before, after)
        assert after.restarts == 1
        assert backend.apply(backend.space.default.replace(max_batch_size=2)).changed
        backend.close()


@pytest.mark.slow
def test_twenty_reloads_under_load(backend: TritonBackend, embedded: EmbeddedTriton) -> None:
    """Not one request fails while the configuration changes twenty times under about 100 requests/s."""
    stop, failures, sent = threading.Event(), [], []

    def keep_sending() -> None:
        send = sender(embedded.target)
        while not stop.wait(0.03):
            try:
                send(1)
                sent.append(time.monotonic())
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=keep_sending) for _ in range(4)]
    for thread in threads:
        thread.start()
    default = backend.space.default
    try:
        for step in range(20):
            size, instances = (2, 4, 8, 16)[step % 4], 1 + step // 2 % 2
            backend.apply(default.replace(max_batch_size=size, instances=instances, max_queue_delay=0.001))
        eventually(lambda: failures or len(sent) > 100)
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert failures == []
    assert backend.counters().failures == 0
