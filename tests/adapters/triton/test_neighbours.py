"""Other models of a server, which a change of one may take out of service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc
from google.protobuf.text_format import Parse
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

from tests.adapters.triton.test_deployed_anew import MODEL, Loading
from tests.adapters.triton.test_limits import TARGET
from tuner.adapters.triton import neighbours
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.neighbours import MOST_ASKED, Neighbours
from tuner.errors import AdapterError, InvalidInput, Refused, TimedOut

PIPE = 'max_batch_size: {} ensemble_scheduling {{ step [{{ model_name: "{}" }}] }}'


class Server(Loading):
    """One whose ensemble cannot do with a batch limit of mlp below 8, whatever it says of itself."""

    def __init__(self) -> None:
        super().__init__(MODEL.format(32))
        self.configs |= {"pipe": PIPE.format(1, "mlp"), "bert": MODEL.format(8)}
        self.others = {"pipe": "READY", "bert": "READY", "idle": "UNAVAILABLE"}
        self.index = True

    def get_model_repository_index(self, **_: Any) -> Any:
        if not self.index:
            raise InferenceServerException("no index", "StatusCode.UNIMPLEMENTED")
        config = Parse(self.configs["mlp"], model_config_pb2.ModelConfig())
        response = service_pb2.RepositoryIndexResponse()
        for name, state in {"mlp": "READY", **self.others}.items():
            fits = name != "pipe" or config.max_batch_size >= 8
            response.models.add(name=name, version="1", state=state if fits else "UNAVAILABLE")
        return response


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    monkeypatch.setattr(neighbours, "WAIT", 0.0)
    return server


@pytest.fixture
def backend(server: Server) -> Iterator[TritonBackend]:
    backend = TritonBackend(TARGET)
    yield backend
    backend.close()


def test_a_change_that_takes_an_ensemble_out_is_taken_back(server: Server, backend: TritonBackend) -> None:
    """Nobody else would look at it."""
    found = backend.current()

    assert backend.apply(found.replace(max_batch_size=8)).changed
    with pytest.raises(Refused, match=r"of 'mlp' Triton no longer serves pipe; the old .* was put back"):
        backend.apply(found.replace(max_batch_size=4))

    assert backend.current() == found.replace(max_batch_size=8)
    assert len(server.loaded) == 3


def test_what_somebody_else_has_loaded_meanwhile_is_not_overwritten(
    server: Server, backend: TritonBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator may have seen it, too."""

    def deploy(*_: Any) -> list[str]:
        server.configs["mlp"] = MODEL.format(16)
        return ["pipe"]

    monkeypatch.setattr(Neighbours, "lost", deploy)

    with pytest.raises(AdapterError, match="could not be put back: somebody else") as caught:
        backend.apply(backend.current().replace(max_batch_size=4))

    assert not isinstance(caught.value, Refused)
    assert backend.current()["max_batch_size"] == 16


def test_what_waits_is_read_before_the_ensembles_are(
    backend: TritonBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until those serve again it may have been answered."""
    waiting = [7.0]

    def look(*_: Any) -> list[str]:
        waiting[:] = [0.0]
        return []

    monkeypatch.setattr(Neighbours, "lost", look)
    monkeypatch.setattr(backend, "_waiting", lambda: waiting[0])

    assert backend.apply(backend.current().replace(max_batch_size=16)).affected == 7


@pytest.mark.parametrize("state", ["UNAVAILABLE", "LOADING"])
def test_one_that_does_not_serve_before_keeps_nobody_from_a_change(
    server: Server, backend: TritonBackend, state: str
) -> None:
    """It may be another ensemble, or one that somebody has unloaded or is just loading."""
    server.others["pipe"] = state

    assert backend.apply(backend.current().replace(max_batch_size=4)).changed


@pytest.mark.parametrize("mate", ["bert", "other"])
def test_one_that_does_not_use_the_model_may_be_unloaded_meanwhile(
    server: Server, backend: TritonBackend, monkeypatch: pytest.MonkeyPatch, mate: str
) -> None:
    """Nothing is taken back for it, also where it is an ensemble of other models, or came later."""
    server.configs["other"] = PIPE.format(8, "bert")
    server.others[mate] = "READY"
    load = server.load_model

    def load_and_unload(model: str, config: str, **_: Any) -> None:
        load(model, config)
        server.others[mate] = "UNAVAILABLE"

    monkeypatch.setattr(server, "load_model", load_and_unload)

    assert backend.apply(backend.current().replace(max_batch_size=16)).changed


def test_an_ensemble_that_came_later_is_known_at_a_change(server: Server) -> None:
    """What has been asked is not asked again, unless it is an ensemble with the model."""
    server.others["pipe"] = "UNAVAILABLE"
    with closing(TritonBackend(TARGET)) as backend:
        server.others["pipe"] = "READY"

        with pytest.raises(Refused, match="no longer serves pipe"):
            backend.apply(backend.current().replace(max_batch_size=4))

    assert server.asked.count("bert") == 1


def test_a_server_without_an_index(server: Server, backend: TritonBackend) -> None:
    """Nothing is compared; its models are changed all the same."""
    server.index = False

    assert backend.apply(backend.current().replace(max_batch_size=4)).changed


def config_of(_: str) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        ({"pipe": "READY"}, []),
        ({"pipe": "UNAVAILABLE", "new": ""}, ["pipe"]),
        ({"pipe": "LOADING"}, []),
        ({}, []),
        (TimedOut("late"), []),
    ],
)
def test_what_is_lost(monkeypatch: pytest.MonkeyPatch, after: Any, lost: list[str]) -> None:
    """What does not serve any more though it is there; what is being loaded is in somebody's hands."""
    monkeypatch.setattr(neighbours, "WAIT", 0.0)

    def states() -> dict[str, str]:
        if isinstance(after, Exception):
            raise after
        return dict(after)

    assert Neighbours("mlp", states, config_of).lost(["pipe"]) == lost


def test_a_moment_out_of_service_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of a model loads its ensembles again."""
    slept: list[float] = []
    monkeypatch.setattr("tuner.adapters.live.waiting.time.sleep", slept.append)
    answers = [{"pipe": state} for state in ("UNAVAILABLE", "LOADING", "READY")]

    assert Neighbours("mlp", lambda: answers.pop(0), config_of, by_file=True).lost(["pipe"]) == []
    assert slept[0] == neighbours.LAG
    assert len(slept) == 3
    assert answers == []


def test_what_was_away_when_the_server_was_last_heard_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have come back since."""

    def asked_twice(condition: Callable[[], bool], _: float, *, despite: Any) -> bool:
        with suppress(*despite):
            return condition() or condition()
        return False

    monkeypatch.setattr(neighbours, "comes_true", asked_twice)
    answers = iter([{"pipe": "UNAVAILABLE"}])

    def states() -> dict[str, str]:
        if (answer := next(answers, None)) is None:
            raise TimedOut("late")
        return answer

    assert Neighbours("mlp", states, config_of).lost(["pipe"]) == []


def test_sizes_that_an_ensemble_cannot_do_with_are_not_tried(server: Server) -> None:
    """To try them would take it out of service for some seconds. A grid of the operator's stays."""
    server.others = dict.fromkeys(("pipe", "large", "other"), "READY") | {"idle": "UNAVAILABLE"}
    server.configs |= {"pipe": PIPE.format(8, "mlp"), "large": PIPE.format(16, "mlp")}
    server.configs |= {"other": PIPE.format(32, "bert"), "idle": PIPE.format(32, "mlp")}
    own = {"max_batch_size": (4.0, 32.0)}

    with closing(TritonBackend(TARGET)) as backend:
        assert backend.space.knobs[0].grid == (1, 16, 32)
        assert "the ensemble large has the model in it: no batch limit below" in backend.describe().notes[0]
    with closing(TritonBackend(TARGET, own)) as backend:
        found = backend.current()
        assert backend.space.knobs[0].grid == (4, 32)
        assert "the ensemble large has" in backend.describe().notes[0]
        with pytest.raises(InvalidInput, match="max_batch_size: 4 is below 16, the max_batch_size of an"):
            backend.check(found.replace(max_batch_size=4))
        server.configs["large"] = PIPE.format(4, "mlp")  # it is deployed anew
        with pytest.raises(InvalidInput, match="4 is below 8"):
            backend.check(found.replace(max_batch_size=4))
        server.others["pipe"] = "UNAVAILABLE"
        backend.check(found.replace(max_batch_size=4))
    assert server.loaded == []


def test_a_server_with_very_many_models_is_not_asked_for_each(server: Server) -> None:
    """Opening one of them would take too long."""
    server.others = {f"m{number}": "READY" for number in range(MOST_ASKED + 1)}

    TritonBackend(TARGET).close()

    assert set(server.asked) == {"mlp"}
