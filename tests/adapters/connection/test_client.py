"""Failures of gRPC become our own errors, in the same way for all servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.adapters.connection.client import ControlClient
from tuner.adapters.connection.security import Security
from tuner.adapters.connection.target import LiveTarget
from tuner.errors import AdapterError, TimedOut, UnknownModel, Unreachable


class Failure(Exception):
    """What a client library raises."""

    def __init__(self, status: str, words: str = "its words") -> None:
        super().__init__(words)
        self.status = status


class Client(ControlClient[LiveTarget]):
    """A client without a server."""

    title = "Toy"

    def _connect(self) -> None:
        return None

    def _failure(self, error: Exception) -> tuple[str, str] | None:
        return (error.status, str(error)) if isinstance(error, Failure) else None

    def models(self) -> list[str]:
        return ["other"]


@pytest.fixture
def client() -> Client:
    return Client(LiveTarget(url="toy://host:1/mine", host="host", port=1, model="mine"))


@pytest.mark.parametrize(
    ("status", "expected", "said"),
    [
        ("UNAVAILABLE", Unreachable, "host:1: its words; is Toy running, and is this its gRPC port?"),
        ("DEADLINE_EXCEEDED", TimedOut, "host:1: no answer in time"),
        ("UNIMPLEMENTED", Unreachable, "host:1 is no Toy: its words"),
        ("NOT_FOUND", UnknownModel, "does not serve 'mine'; models loaded: other"),
        ("INTERNAL", AdapterError, r"host:1: its words \(INTERNAL\)"),
        (
            "UNAUTHENTICATED",
            AdapterError,
            r"its words \(UNAUTHENTICATED\); .* with token_file=, and tls=grpc",
        ),
    ],
)
def test_statuses_are_translated(client: Client, status: str, expected: type[Exception], said: str) -> None:
    """The message names the address and what to look at."""
    with pytest.raises(expected, match=said), client.translated():
        raise Failure(status)


def test_whoever_has_named_a_token_is_told_that_it_is_refused(tmp_path: Path) -> None:
    """It may have expired: to name a file is no help."""
    (token := tmp_path / "token").write_text("old")
    token.chmod(0o600)
    security = Security(grpc=True, token_file=token)
    client = Client(LiveTarget(url="toy://host:1/mine", host="host", port=1, model="mine", security=security))

    with (
        pytest.raises(AdapterError, match="does not take the token that token_file= names"),
        client.translated(),
    ):
        raise Failure("UNAUTHENTICATED")


@pytest.mark.parametrize(
    ("secured", "words", "said"),
    [
        (True, "SSL_ERROR_SSL: OPENSSL_internal:WRONG_VERSION_NUMBER", "host:1: it does not speak TLS there"),
        (True, "CERTIFICATE_VERIFY_FAILED: unable to get local issuer", "does ca= name the authority"),
        (True, "Socket closed", r"Does it want a certificate of ours \(cert= and key=\)\?"),
        (False, "Socket closed", r"its gRPC port\? Does it want TLS \(tls=grpc\)\?"),
        (False, "Connection refused", r"host:1: Connection refused; is Toy running, .* its gRPC port\?$"),
    ],
)
def test_what_is_wrong_with_tls_is_named_with_its_option(secured: bool, words: str, said: str) -> None:
    """As real servers were seen to end connections."""
    security = Security(grpc=secured)
    client = Client(LiveTarget(url="toy://host:1/mine", host="host", port=1, model="mine", security=security))

    with pytest.raises(Unreachable, match=said), client.translated():
        raise Failure("UNAVAILABLE", words)


def test_a_model_that_was_served_has_gone_away(client: Client) -> None:
    """That is the server's failure, not the user's mistake."""
    client._known = True

    with pytest.raises(Unreachable, match="no longer serves 'mine'"), client.translated():
        raise Failure("NOT_FOUND")


def test_a_server_that_was_reached_is_not_asked_for_its_port(client: Client) -> None:
    """Its address is right: it has ended, or restarts."""
    client._known = True

    with pytest.raises(Unreachable, match=r"^host:1: its words$"), client.translated():
        raise Failure("UNAVAILABLE")


def test_a_closed_channel_and_other_errors(client: Client) -> None:
    """gRPC says ValueError to a closed channel; what is no failure of gRPC passes through."""
    with pytest.raises(Unreachable, match="connection was closed"), client.translated():
        raise ValueError
    with pytest.raises(KeyError), client.translated():
        raise KeyError("x")
