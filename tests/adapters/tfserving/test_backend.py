"""The adapter against a running server: the real one where its binary is on the PATH, else the stand-in."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import tenacity

from tests.adapters.tfserving.conftest import Send, sender, served_by
from tests.adapters.waiting import counted
from tests.waiting import eventually
from tuner.adapters.tfserving.backend import TFServingBackend
from tuner.adapters.tfserving.batching import FILE, write_batching
from tuner.adapters.tfserving.embedded import EmbeddedTFServing, TFServingOptions
from tuner.adapters.tfserving.versions import knobs as version_knobs
from tuner.adapters.tfserving.versions.folders import MARKER
from tuner.errors import AdapterError, InvalidInput, ReadOnly, Refused, TimedOut, UnknownModel, Unreachable
from tuner.knobs import ApplyCost, Configuration
from tuner.testing.backend import BackendContract

pytestmark = pytest.mark.tfserving


class TestContract(BackendContract):
    """The server is held to all of it."""

    below = -1.0

    @pytest.fixture
    def backend(self, backend: TFServingBackend) -> TFServingBackend:
        return backend

    @pytest.fixture
    def traffic(self, traffic: Callable[[int], None]) -> Callable[[int], None]:
        return traffic

    @pytest.fixture
    def refused(self, backend: TFServingBackend, monkeypatch: pytest.MonkeyPatch) -> Configuration:
        """Parameters that only the server itself knows to be wrong."""
        write = write_batching
        monkeypatch.setattr(version_knobs, "write_batching", lambda b: f"{write(b)}no_such_field: 1\n")
        return backend.current().replace(max_batch_size=8)


def files(embedded: EmbeddedTFServing) -> list[str]:
    """Everything below the model's folder."""
    return sorted(str(path.relative_to(embedded.base_path)) for path in embedded.base_path.rglob("*"))


def test_description(backend: TFServingBackend, embedded: EmbeddedTFServing) -> None:
    """The model, its version and the server's process; quantiles come from its histogram."""
    description = backend.describe()

    assert (description.server, description.model) == ("tfserving", "mlp")
    assert description.writable
    assert description.quantiles
    assert description.processes == (embedded.pid,)
    assert description.counts_by_process
    assert description.notes == ()


def test_a_change_is_a_version_folder(
    backend: TFServingBackend, embedded: EmbeddedTFServing, send: Send
) -> None:
    """It appears beside the operator's, marked; requests go to it; restoring removes it."""
    before = files(embedded)

    backend.apply(Configuration(max_batch_size=8, batch_timeout=0.002))

    number = backend.serving()
    folder = embedded.base_path / str(number)
    assert "max_batch_size {\n  value: 8\n}" in (folder / FILE).read_text()
    assert "batch_timeout_micros {\n  value: 2000\n}" in (folder / FILE).read_text()
    assert (folder / MARKER).exists()
    assert (folder / "saved_model.pb").samefile(embedded.base_path / "1" / "saved_model.pb")
    assert served_by(send(1)[0]) == number
    backend.restore()
    assert files(embedded) == before
    assert served_by(send(1)[0]) == 1
    assert not backend.restore().changed


def test_old_versions_of_ours_go(backend: TFServingBackend, embedded: EmbeddedTFServing) -> None:
    """After a few changes there are the operator's version and the serving one."""
    for size in (2, 4, 8):
        backend.apply(Configuration(max_batch_size=size, batch_timeout=0.001))

    assert backend._version_knobs._versions.numbers() == [1, backend.serving()]


def test_the_operators_versions_are_never_touched(
    backend: TFServingBackend, embedded: EmbeddedTFServing, send: Send
) -> None:
    """A newer version that somebody else puts there serves, is built upon, and stays."""
    backend.apply(Configuration(max_batch_size=2, batch_timeout=0.0))
    number = backend.serving() + 1
    foreign = embedded.base_path / str(number)
    (embedded.base_path / "1").rename(foreign)  # its files, under another number
    try:
        eventually(lambda: backend.serving() == number)

        assert backend.current()["max_batch_size"] == 1
        backend.apply(Configuration(max_batch_size=4, batch_timeout=0.0))

        assert backend._version_knobs._versions.numbers() == [number, number + 1]
        assert served_by(send(1)[0]) == number + 1
    finally:
        foreign.rename(embedded.base_path / "1")


def test_batches_form(backend: TFServingBackend) -> None:
    """Under parallel load a larger limit gives larger batches, and the counts add up."""
    backend.apply(Configuration(max_batch_size=16, batch_timeout=0.5))
    threads = [threading.Thread(target=sender(backend), args=(10,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted(backend, 160)

    counters = backend.counters()

    sizes = counters.batch_counts.nonzero()[0]
    assert sizes.max() >= 8
    assert counters.requests == counters.inferences == 160
    assert 0 < counters.queue < counters.latency
    assert counters.latencies.counts.sum() == 160


def test_large_requests_set_a_lower_limit(backend: TFServingBackend, send: Send) -> None:
    """No batch limit below the rows that clients may send in one request; no batching is still possible."""
    backend.apply(Configuration(max_batch_size=8, batch_timeout=0.0))
    send(2, rows=6)
    counted(backend, 2)

    with pytest.raises(InvalidInput, match="below 7, the rows that clients may send in one request"):
        backend.apply(Configuration(max_batch_size=4, batch_timeout=0.0))

    backend.apply(Configuration(max_batch_size=16, batch_timeout=0.0))
    send(1, rows=6)


def test_refusal_carries_the_servers_words(
    backend: TFServingBackend, embedded: EmbeddedTFServing, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator reads why; the old version serves and nothing is left of the new one."""
    before = files(embedded)
    monkeypatch.setattr(version_knobs, "write_batching", lambda _: "max_batch_size: nonsense")

    with pytest.raises(Refused, match=r"(?s)did not load the version.*still serves"):
        backend.apply(Configuration(max_batch_size=8, batch_timeout=0.0))

    assert served_by(send(1)[0]) == 1
    assert files(embedded) == before


def test_a_version_that_is_not_loaded_in_time(embedded: EmbeddedTFServing, send: Send) -> None:
    """It is taken away again, and the old one serves."""
    before = files(embedded)
    backend = TFServingBackend(embedded.target, load_timeout=0.0)

    with pytest.raises(Refused, match="was removed, the old one still serves"):
        backend.apply(Configuration(max_batch_size=8, batch_timeout=0.0))

    assert files(embedded) == before
    backend.close()


def test_two_tuners(backend: TFServingBackend, embedded: EmbeddedTFServing) -> None:
    """While one changes the model, another is refused."""
    with (
        backend._version_knobs._versions.locked(),
        pytest.raises(Refused, match="another tuner"),
    ):
        backend.apply(Configuration(max_batch_size=8, batch_timeout=0.0))


def test_without_a_folder(embedded: EmbeddedTFServing) -> None:
    """It can be watched; the note says what would make it tunable."""
    target = embedded.target.partition("&base_path")[0]
    backend = TFServingBackend(target)
    sender(backend)(3)
    counted(backend, 3)

    description = backend.describe()

    assert backend.space.size == 1
    assert not description.writable
    assert "base_path=" in description.notes[0]
    with pytest.raises(InvalidInput, match="base_path="):
        TFServingBackend(target, {"max_batch_size": (1.0, 2.0)})
    backend.close()


def test_unknown_model(embedded: EmbeddedTFServing) -> None:
    """The server does not say which models it has, so the message has none."""
    with pytest.raises(UnknownModel, match="does not serve 'bert'"):
        TFServingBackend(embedded.target.replace("/mlp?", "/bert?"))


def test_rest_port_in_the_place_of_grpc(embedded: EmbeddedTFServing) -> None:
    """The usual mix-up of 8500 and 8501."""
    target = f"tfserving://127.0.0.1:{embedded.ports.rest}/mlp?rest={embedded.ports.rest}"

    with pytest.raises(Unreachable, match="gRPC port"):
        TFServingBackend(target)


def test_closed_rest_port(embedded: EmbeddedTFServing) -> None:
    """Port, flag and option are named."""
    target = f"tfserving://127.0.0.1:{embedded.ports.grpc}/mlp?rest=1"

    with pytest.raises(Unreachable, match=r"metrics port 1.*--rest_api_port.*rest="):
        TFServingBackend(target)


def test_server_without_parameters_per_version() -> None:
    """Its flags are read from its process: it can be watched, and the missing flag is named."""
    with EmbeddedTFServing(options=TFServingOptions(per_model=False)) as server:
        backend = TFServingBackend(server.target)

        with pytest.raises(ReadOnly, match="--enable_per_model_batching_parameters"):
            backend.apply(Configuration(max_batch_size=4, batch_timeout=0.0))
        backend.close()


def test_server_dies_and_returns() -> None:
    """While it is away every call says so; when it is back, totals go on and changes work."""
    with EmbeddedTFServing() as server:
        backend = TFServingBackend(server.target, settle=0.0, timeout=10.0)
        send = sender(backend)
        send(5)
        counted(backend, 5)
        server.kill()

        with pytest.raises((Unreachable, TimedOut)):
            backend.counters()
        with pytest.raises((Unreachable, TimedOut)):
            backend.apply(Configuration(max_batch_size=2, batch_timeout=0.0))

        server.restart()
        reconnect = tenacity.Retrying(
            stop=tenacity.stop_after_delay(60),
            wait=tenacity.wait_fixed(0.05),
            retry=tenacity.retry_if_exception_type((Unreachable, TimedOut)),
        )
        reconnect(backend.current)
        send(4)
        counted(backend, 9)
        assert backend.counters().restarts == 1
        assert backend.apply(Configuration(max_batch_size=2, batch_timeout=0.0)).changed
        backend.close()


def label_target(server: EmbeddedTFServing, label: str) -> str:
    return f"{server.target}&label={label}"


@pytest.fixture(scope="module")
def labelled() -> Iterator[EmbeddedTFServing]:
    """A server that names its versions and gives them labels."""
    with EmbeddedTFServing(options=TFServingOptions(labels={"stable": 1, "canary": 2})) as server:
        yield server


def test_a_label_moves_and_comes_back(labelled: EmbeddedTFServing) -> None:
    """Requests by the label go to the new version, those by another label stay; restoring leaves no trace."""
    before, config = files(labelled), labelled.base_path.parents[1] / "models.pbtxt"
    written = config.read_text()
    stable = TFServingBackend(label_target(labelled, "stable"), settle=0.0)
    canary = TFServingBackend(label_target(labelled, "canary"), settle=0.0)

    for size in (4, 8):
        stable.apply(Configuration(max_batch_size=size, batch_timeout=0.001))

    number = stable.serving()
    assert number > 2
    assert served_by(sender(stable)(1)[0]) == number
    assert served_by(sender(canary)(1)[0]) == canary.serving() == 2
    assert stable.current() == Configuration(max_batch_size=8, batch_timeout=0.001)
    assert [n for n in stable._version_knobs._versions.numbers() if n > 2][-1] == number
    stable.restore()
    assert stable.serving() == 1
    assert config.read_text() == written
    assert files(labelled) == before
    for backend in (stable, canary):
        backend.close()


def test_a_refused_version_leaves_the_label(
    labelled: EmbeddedTFServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration file is as it was, and so is what the label stands for."""
    config = labelled.base_path.parents[1] / "models.pbtxt"
    written = config.read_text()
    backend = TFServingBackend(label_target(labelled, "canary"), settle=0.0)
    monkeypatch.setattr(version_knobs, "write_batching", lambda _: "max_batch_size: nonsense")

    with pytest.raises(Refused):
        backend.apply(Configuration(max_batch_size=4, batch_timeout=0.0))

    assert backend.serving() == 2
    assert config.read_text() == written
    backend.close()


def test_unknown_label(labelled: EmbeddedTFServing) -> None:
    """The labels that there are stand in the message."""
    with pytest.raises((InvalidInput, AdapterError), match="label"):
        TFServingBackend(label_target(labelled, "best"))


def test_where_a_label_stands(labelled: EmbeddedTFServing) -> None:
    """Nowhere, if the server does not know it; that it does not answer says nothing of it."""
    backend = TFServingBackend(label_target(labelled, "stable"))
    assert backend._client.standing("stable") == backend.serving()
    assert backend._client.standing("best") is None
    backend.close()

    with pytest.raises(Unreachable):
        backend._client.standing("best")


def test_a_label_without_the_configuration_file(labelled: EmbeddedTFServing) -> None:
    """It can be watched; the note names the option."""
    target = label_target(labelled, "stable").replace("&config=", "&rest_of=")
    backend = TFServingBackend(target.partition("&rest_of")[0] + "&label=stable")

    description = backend.describe()

    assert not description.writable
    assert "config=" in description.notes[0]
    backend.close()


SCRIPT = """#!{python}
import os, pathlib, signal, sys
folder = pathlib.Path({folder!r})
values = dict(word.split("=") for word in sys.argv[1:])
if values.get("intra_op") == "7":
    sys.exit("seven threads are unlucky")
threads = int(values["batch_threads"])
(folder / "batching.pbtxt").write_text(f"num_batch_threads {{{{ value: {{threads}} }}}}" if threads else " ")
(folder / "wanted").write_text(" ".join(sys.argv[1:]))
"""


def test_threads_by_a_declared_restart(tmp_path: Path) -> None:
    """The operator's command restarts the server; what runs is read from the server's own command line.

    Here it leaves the number of batch threads to the server, which would not start with one of 0.
    """
    with EmbeddedTFServing(options=TFServingOptions(batch_threads=2)) as server:
        command = tmp_path / "restart"
        folder = str(server.base_path.parents[1])
        command.write_text(SCRIPT.format(python=sys.executable, folder=folder))
        command.chmod(0o755)
        backend = TFServingBackend(f"{server.target}&restart={command}", {"max_batch_size": (1.0, 4.0)})
        wanted = backend.current().replace(max_batch_size=4, batch_threads=0)
        watcher = threading.Thread(target=restart_when_wanted, args=(server, tmp_path))
        watcher.start()

        assert set(backend.space.names) == {
            "max_batch_size",
            "batch_timeout",
            "batch_threads",
            "inter_op",
            "intra_op",
        }
        report = backend.apply(wanted)

        assert report.cost is ApplyCost.RESTART
        assert backend.current() == wanted
        assert sender(backend)(1)
        with pytest.raises(Refused, match="seven threads are unlucky"):
            backend.apply(wanted.replace(max_batch_size=1, intra_op=7))
        assert backend.current() == wanted
        folders = sorted(server.base_path.iterdir())
        with pytest.raises(Refused, match="seven threads are unlucky"):
            backend.apply(wanted.replace(intra_op=7))
        assert sorted(server.base_path.iterdir()) == folders, "a version that nobody needs"
        (tmp_path / "end").touch()
        watcher.join()
        backend.close()


def restart_when_wanted(server: EmbeddedTFServing, folder: Path) -> None:
    """What a service manager does: the embedded server is restarted when the command has left its wishes."""
    wanted = server.base_path.parents[1] / "wanted"
    while not (folder / "end").exists():
        if wanted.exists():
            wanted.unlink()
            server.restart()
        time.sleep(0.05)


@pytest.mark.slow
def test_twenty_changes_under_load(backend: TFServingBackend) -> None:
    """Not one request fails while the configuration changes twenty times."""
    stop, failures, sent = threading.Event(), [], []

    def keep_sending() -> None:
        send = sender(backend)
        while not stop.wait(0.03):
            try:
                sent.extend(send(1))
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=keep_sending) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for step in range(20):
            backend.apply(Configuration(max_batch_size=(8, 16, 32, 1)[step % 4], batch_timeout=0.001))
        eventually(lambda: failures or len(sent) > 100)
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert failures == []
    assert backend.counters().failures == 0


def test_an_overloaded_server_is_asked_over_rest(
    embedded: EmbeddedTFServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions keep its gRPC threads busy; what serves is known all the same, and it can be changed."""
    backend = TFServingBackend(embedded.target, settle=0.0)

    def late(*_: object, **__: object) -> NoReturn:
        raise TimedOut("no answer in time")

    monkeypatch.setattr(backend._client, "_ask", late)

    before = backend.current()
    backend.apply(Configuration(max_batch_size=16, batch_timeout=0.001))

    assert backend.current()["max_batch_size"] == 16
    assert backend._client._rest("/labels/none/metadata", dict) is None
    backend.restore()
    assert backend.current() == before
    backend.close()
