"""The versions of a model: each load of a Triton looks for new ones."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from tests.adapters.triton.test_deployed_anew import MODEL, Loading
from tests.adapters.triton.test_limits import TARGET
from tuner.adapters.triton.backend import TritonBackend
from tuner.errors import AdapterError, ReadOnly, UnknownModel, Unreachable


class Versioned(Loading):
    """A server with version folders, and statistics of those that it has loaded."""

    folders: tuple[str, ...] = ("1",)
    loaded_versions: tuple[str, ...] = ("1",)

    def get_inference_statistics(self, *_: Any, **__: Any) -> Any:
        response = service_pb2.ModelStatisticsResponse()
        for version in self.loaded_versions:
            response.model_stats.add(name="mlp", version=version)
        return response

    def load_model(self, model: str, config: str, **_: Any) -> None:
        super().load_model(model, config)
        self.loaded_versions = self.folders


def test_a_version_that_was_only_copied(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator learns that it serves now."""
    server = Versioned(MODEL.format(8))
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    with closing(TritonBackend(TARGET)) as backend:
        running = backend.current()
        backend.apply(running.replace(max_batch_size=2))
        assert caplog.messages == []
        server.folders = ("1", "2")

        backend.apply(running)

    assert ["has put version 2 into service" in message for message in caplog.messages] == [True]


class Latest(Versioned):
    """It serves its newest version only, and says of others what a real one says."""

    def get_model_config(self, model: str, version: str = "", **_: Any) -> Any:
        if version and version not in self.folders:
            words = f"Request for unknown model: 'mlp' version {version} is not found"
            raise InferenceServerException(words, "StatusCode.NOT_FOUND")
        if version and version not in self.loaded_versions:
            words = f"Request for unknown model: 'mlp' version {version} is not at ready state"
            raise InferenceServerException(words, "StatusCode.UNAVAILABLE")
        return super().get_model_config(model)

    def get_model_repository_index(self, **_: Any) -> Any:
        response = service_pb2.RepositoryIndexResponse()
        for version in self.folders:
            state = "READY" if version in self.loaded_versions else "UNAVAILABLE"
            response.models.add(name="mlp", version=version, state=state)
        return response

    def load_model(self, model: str, config: str, **_: Any) -> None:
        super().load_model(model, config)
        self.loaded_versions = self.folders[-1:]


def test_a_change_that_ends_the_version_which_is_tuned_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the server nor its port is to blame: a version that was copied has taken its place."""
    server = Latest(MODEL.format(8))
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    with closing(TritonBackend(f"{TARGET}&version=1")) as backend:
        server.folders = ("1", "4")

        with pytest.raises(
            Unreachable, match=r"no longer serves version 1 of 'mlp', but version 4: .*policy"
        ):
            backend.apply(backend.current().replace(max_batch_size=2))


@pytest.mark.parametrize("version", ["1", "7"])
def test_a_version_that_is_not_served_is_named_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Whether its folder is there or not."""
    server = Latest(MODEL.format(8))
    server.folders, server.loaded_versions = ("1", "4"), ("4",)
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)

    with pytest.raises(UnknownModel, match=f"not serve version {version} of 'mlp'; versions loaded: 4"):
        TritonBackend(f"{TARGET}&version={version}")


class Starting(Latest):
    """It serves no version that it is asked for, and its index says what it is told to; None forbids it."""

    loaded_versions = ()
    states: dict[str, str] | None = None

    def get_model_repository_index(self, **_: Any) -> Any:
        if self.states is None:
            words = "This protocol is restricted, expecting header 'triton-grpc-protocol-admin'"
            raise InferenceServerException(words, "StatusCode.UNAVAILABLE")
        response = service_pb2.RepositoryIndexResponse()
        for version, state in self.states.items():
            response.models.add(name="mlp", version=version, state=state)
        return response


@pytest.mark.parametrize(
    "states",
    [{"1": "LOADING"}, {"1": "UNAVAILABLE"}, {"1": "LOADING", "2": "READY"}, {"1": "READY"}, None],
    ids=["loading", "none", "beside another", "by now", "restricted"],
)
def test_a_version_that_may_yet_be_served_is_no_mistake(
    monkeypatch: pytest.MonkeyPatch, states: dict[str, str] | None
) -> None:
    """A server that starts lists its versions before it serves them."""
    server = Starting(MODEL.format(8))
    server.states = states
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)

    with pytest.raises(Unreachable, match=r"version 1 of 'mlp' is not ready$"):
        TritonBackend(f"{TARGET}&version=1")


@pytest.mark.parametrize(
    ("version", "named"), [("&version=7", "version 7 of 'mlp'$"), ("", "'mlp'$")], ids=["version", "model"]
)
def test_what_is_not_served_is_named_also_where_the_index_is_restricted(
    monkeypatch: pytest.MonkeyPatch, version: str, named: str
) -> None:
    """That a server takes no changes would be another matter."""
    server = Starting(MODEL.format(8))
    words = f"Request for unknown model: 'mlp' {version and 'version 7 '}is not found"

    def unknown(*_: Any, **__: Any) -> Any:
        raise InferenceServerException(words, "StatusCode.NOT_FOUND")

    monkeypatch.setattr(server, "get_model_config", unknown)
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)

    with pytest.raises(UnknownModel, match=f"not serve {named}"):
        TritonBackend(f"{TARGET}{version}")


@pytest.mark.parametrize(
    "status", ["NOT_FOUND", "INVALID_ARGUMENT", "UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED"]
)
@pytest.mark.parametrize(
    ("version", "named"), [("&version=7", "version 7 of 'mlp'$"), ("", "'mlp'$")], ids=["version", "model"]
)
def test_what_is_not_served_is_named_also_where_there_is_no_index(
    monkeypatch: pytest.MonkeyPatch, version: str, named: str, status: str
) -> None:
    """That a proxy lets no question for the index through says nothing of the model, nor of the port."""
    server = Latest(MODEL.format(8))
    words = f"Request for unknown model: 'mlp' {version and 'version 7 '}is not found"

    def unknown(*_: Any, **__: Any) -> Any:
        raise InferenceServerException(words, "StatusCode.NOT_FOUND")

    def no_index(**_: Any) -> Any:
        raise InferenceServerException("no such method", f"StatusCode.{status}")

    monkeypatch.setattr(server, "get_model_config", unknown)
    monkeypatch.setattr(server, "get_model_repository_index", no_index)
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)

    with pytest.raises(UnknownModel, match=f"not serve {named}"):
        TritonBackend(f"{TARGET}{version}")


@pytest.mark.parametrize(
    ("call", "observed"),
    [("unload_model", True), ("get_inference_statistics", False), ("get_server_metadata", False)],
)
def test_a_server_that_restricts_some_calls(
    monkeypatch: pytest.MonkeyPatch, call: str, observed: bool
) -> None:
    """Another control mode would change nothing: the flag that does it is named."""
    server = Latest(MODEL.format(8))

    def restricted(*_: Any, **__: Any) -> Any:
        words = "This protocol is restricted, expecting header 'triton-grpc-protocol-admin'"
        raise InferenceServerException(words, "StatusCode.UNAVAILABLE")

    monkeypatch.setattr(server, call, restricted)
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)

    if observed:
        described = TritonBackend(TARGET).describe()
        assert not described.writable
        problem = described.notes[0]
    else:
        with pytest.raises(ReadOnly) as found:
            TritonBackend(TARGET)
        problem = str(found.value)
    assert "expecting header 'triton-grpc-protocol-admin'" in problem
    assert "out of Triton's --grpc-restricted-protocol" in problem


def test_a_server_that_wants_to_know_who_asks_is_not_taken_for_one_without_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It refuses every call, so nothing is known of the model."""
    server = Latest(MODEL.format(8))

    def refuse(*_: Any, **__: Any) -> Any:
        raise InferenceServerException("no token", "StatusCode.UNAUTHENTICATED")

    for call in ("get_server_metadata", "get_model_config", "get_model_repository_index"):
        monkeypatch.setattr(server, call, refuse)
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)

    with pytest.raises(AdapterError, match=r"UNAUTHENTICATED\); it wants to know who asks"):
        TritonBackend(TARGET)
