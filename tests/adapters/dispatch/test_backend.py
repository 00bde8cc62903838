"""The adapter of the dispatcher, before a real one with a fake server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.adapters.dispatch.running import TOKEN, Running, target_of
from tests.adapters.mounted import mount
from tests.dispatch.fakes import request
from tuner.adapters.backend import Backend
from tuner.adapters.connection.credentials import TOKEN_STAYS
from tuner.adapters.dispatch import DispatchBackend
from tuner.adapters.dispatch.client import DispatchClient
from tuner.adapters.dispatch.flow import traffic_between
from tuner.adapters.scaling import ScalingSource
from tuner.control.drive.requirement import require_knobs
from tuner.dispatch.request import Refused
from tuner.errors import InvalidInput, ReadOnly, StorageError, Unreachable
from tuner.knobs import Grids
from tuner.profiler.attachment import attach
from tuner.testing import BackendContract


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    found = Running()
    yield found
    found.stop()


@pytest.fixture
def target(running: Running, tmp_path: Path) -> str:
    return target_of(running, tmp_path)


class TestContract(BackendContract):
    """It does all that callers rely on."""

    below = -1.0

    @pytest.fixture
    def backend(self, target: str) -> Iterator[DispatchBackend]:
        found = DispatchBackend(target)
        before = found.current()
        yield found
        found.apply(before)

    @pytest.fixture
    def reopen(self, target: str) -> Callable[[Grids], Backend]:
        return lambda grids: DispatchBackend(target, grids)

    @pytest.fixture
    def traffic(self, running: Running) -> Callable[[int], None]:
        return running.send


def test_its_totals_end_with_its_process(target: str) -> None:
    """So that totals that begin anew are a restart."""
    assert DispatchBackend(target).describe().counts_by_process


def test_limits_of_a_session(target: str) -> None:
    """They are knobs where a grid is given for them."""
    backend = DispatchBackend(target, {"m.max_batch": (2.0, 4.0, 8.0)})
    before = backend.current()

    assert backend.apply(before.replace(**{"m.max_batch": 4.0})).configuration["m.max_batch"] == 4
    backend.apply(before)


def test_grids_contain_what_runs(target: str) -> None:
    """So that it is judged as what it is, and can come back after a change."""
    usual = DispatchBackend(target)
    before = usual.current()
    usual.apply(before.replace(batch_cap=24.0, deferral=0.6))

    unusual = DispatchBackend(target)

    assert unusual.current() in unusual.space
    usual.apply(before)


def test_what_runs_already_is_not_refused(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file may hold what we do not set, such as a larger cap: to put that back changes nothing."""
    state = DispatchBackend(target)._client.state()
    knobs = {**state["knobs"], "batch_cap": 2000.0}
    monkeypatch.setattr(DispatchClient, "state", lambda _: {**state, "knobs": knobs})

    backend = DispatchBackend(target)

    assert backend.current()["batch_cap"] == 2000.0
    assert not backend.apply(backend.current()).changed


def test_what_its_file_holds_is_put_back(target: str) -> None:
    """Though we would not set it."""
    usual = DispatchBackend(target)
    usual._client.set({"batch_cap": 2000.0})
    backend = DispatchBackend(target)
    backend.apply(backend.current().replace(batch_cap=8.0))

    assert backend.restore().changed

    assert backend.current()["batch_cap"] == 2000.0
    assert not backend.restore().changed
    usual.restore()


def test_the_dispatcher_says_how_many_instances_it_should_have(running: Running, target: str) -> None:
    """The same as it exports itself."""
    backend = DispatchBackend(target)
    running.send(1)

    (advice,) = backend.scaling().values()

    assert isinstance(backend, ScalingSource)
    assert (advice.accelerators, advice.desired) == (1, 1)


@pytest.mark.parametrize("pools", [["m"], {"m": {"instances": 1}}, {"m": {"instances": 1, "desired": "x"}}])
def test_advice_of_an_unknown_form(target: str, monkeypatch: pytest.MonkeyPatch, pools: object) -> None:
    """Is as if the dispatcher did not answer."""
    backend = DispatchBackend(target)
    monkeypatch.setattr(DispatchClient, "state", lambda _: {"pools": pools})

    with pytest.raises(Unreachable, match="unknown form"):
        backend.scaling()


def test_a_policy_without_knobs(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of symphony would be tried in vain: only limits with a grid are tried, and a note says so."""
    state = DispatchBackend(target)._client.state()
    knobs = {name: value for name, value in state["knobs"].items() if name != "policy"}
    monkeypatch.setattr(DispatchClient, "state", lambda _: {**state, "knobs": knobs})

    backend = DispatchBackend(target, {"m.max_batch": (2.0, 4.0)})

    assert backend.space.names == ("m.max_batch",)
    assert backend.describe().notes == ("its policy has no knobs, those of symphony do nothing",)
    usual = DispatchBackend(target)
    assert "deferral" in usual.space.names  # something must be shown
    assert usual.current() == usual.space.default
    with (
        attach(target) as attachment,
        pytest.raises(InvalidInput, match="m has no knob with more than one value; give limits of its"),
    ):
        require_knobs(attachment)
    assert "give limits of its sessions a grid, such as --knob " in usual.describe().notes[0]
    with pytest.raises(InvalidInput, match=r"knob deferral: does nothing under .*; give limits"):
        DispatchBackend(target, {"m.max_batch": (2.0, 4.0), "deferral": (0.0, 0.5)})


def test_knobs_that_a_reload_took_away(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another policy's file has no knob for it, and a session that is gone has no limit."""
    backend = DispatchBackend(target, {"m.max_batch": (2.0, 4.0)})
    state = backend._client.state()
    knobs = {name: value for name, value in state["knobs"].items() if name not in {"policy", "m.max_batch"}}
    monkeypatch.setattr(DispatchClient, "state", lambda _: {**state, "knobs": knobs})

    with pytest.raises(Unreachable, match=r"has no policy, m\.max_batch any more"):
        backend.current()


def test_without_the_token(target: str) -> None:
    """It observes, and changes nothing."""
    backend = DispatchBackend(target.partition("?")[0])

    assert not backend.describe().writable
    with pytest.raises(ReadOnly, match="token"):
        backend.apply(backend.current().replace(deferral=0.75))


def test_a_token_that_kubernetes_renews(target: str, tmp_path: Path) -> None:
    """It is a link, whose folder is another one after a renewal."""
    place = tmp_path / "mounted"
    mount(place, token=b"the token of yesterday")
    backend = DispatchBackend(f"{target.partition('?')[0]}?token_file={place / 'token'}")
    before = backend.current()
    wanted = before.replace(deferral=0.75)

    with pytest.raises(ReadOnly, match="the token is missing or wrong"):
        backend.apply(wanted)
    mount(place, token=TOKEN.encode())

    assert backend.apply(wanted).configuration == wanted
    backend.apply(before)


def test_a_token_in_the_middle_of_its_renewal(target: str, caplog: pytest.LogCaptureFixture) -> None:
    """The one from before stays in use, which the log says once; at opening there is none."""
    token = Path(target.partition("token_file=")[2])
    backend = DispatchBackend(target)
    before = backend.current()
    wanted = before.replace(deferral=0.75)

    token.write_text("")

    assert backend.apply(wanted).configuration == wanted
    backend.apply(before)
    assert [TOKEN_STAYS in record.getMessage() for record in caplog.records].count(True) == 1
    with pytest.raises(StorageError, match="holds no token"):
        DispatchBackend(target)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("dispatch://127.0.0.1:1", Unreachable),
        ("dispatch://127.0.0.1:9102/model", InvalidInput),
        ("dispatch://127.0.0.1:9102?tls=all", InvalidInput),
        ("dispatch://user:secret@127.0.0.1:9102", InvalidInput),
    ],
)
def test_targets_that_cannot_be_used(target: str, error: type[Exception]) -> None:
    """Each ends with one sentence."""
    with pytest.raises(error):
        DispatchBackend(target)


def test_what_came_of_each_session(running: Running, target: str) -> None:
    """Since it was last asked: the load, the batches, the sizes and what was dropped, by the reason."""
    backend = DispatchBackend(target)
    assert backend.traffic() is None
    backend.counters()
    running.send(8)
    backend.counters()  # inside of a window
    with pytest.raises(Refused):
        running.ask(request(items=99))
    backend.counters()

    traffic = backend.traffic()
    assert traffic is not None
    (session,) = traffic.sessions
    passed = traffic.seconds
    assert (session.name, session.waiting, session.mean_batch) == ("m", 0, 1.0)
    assert (session.rate * passed, session.in_time * passed, session.late) == pytest.approx((9, 8, 0))
    assert dict(session.dropped) == {"invalid": pytest.approx(1 / passed)}
    assert session.sizes == {1: 8, 99: 1}
    assert [(server.address, server.up, server.reason) for server in traffic.servers] == [("a:1", True, "")]
    assert backend.traffic() is None


def test_another_process_counts_anew() -> None:
    """Nothing is said of the time between two processes, nor by a dispatcher that counts no sessions."""
    totals = {
        "arrivals": 5,
        "in_time": 5,
        "late": 0,
        "batches": 1,
        "items": 5,
        "dropped": {},
        "sizes": {"1": 5},
    }
    state = {"time": 9.0, "backends": [], "sessions": [{"name": "m", "waiting": 0, **totals}]}

    assert traffic_between(state, {**state, "time": 1.0}) is None
    assert traffic_between({**state, "time": 1.0, "sessions": [{"name": "m"}]}, state) is None
    assert traffic_between({**state, "time": 1.0}, state).sessions[0].rate == 0
