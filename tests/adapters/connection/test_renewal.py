"""The connection to a server is opened anew once the certificates for it were renewed."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.certificates import make_certificates
from tuner.adapters.connection.client import ControlClient
from tuner.adapters.connection.security import Security
from tuner.adapters.connection.target import LiveTarget
from tuner.errors import StorageError


class Opened:
    """A connection that says whether it is open."""

    def __init__(self, credentials: Any) -> None:
        self.credentials = credentials
        self.open = True

    def close(self) -> None:
        self.open = False


class Client(ControlClient[LiveTarget]):
    """A client that keeps all connections that it opened, for a look."""

    title = "Toy"

    def _connect(self) -> Opened:
        return Opened(self._target.security.channel_credentials())

    def _failure(self, error: Exception) -> None:
        return None

    def ask(self) -> Opened:
        with self.translated():
            found: Opened = self._connection
            return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_certificates(tmp_path)
    for kind in ("crt", "key"):
        shutil.copy(tmp_path / f"client.{kind}", tmp_path / f"used.{kind}")
    return tmp_path


@pytest.fixture
def client(folder: Path) -> Client:
    security = Security(grpc=True, ca=folder / "ca.crt", cert=folder / "used.crt", key=folder / "used.key")
    return Client(LiveTarget(url="toy://h:1/m", host="h", port=1, model="m", security=security))


def use(folder: Path, name: str, *kinds: str) -> None:
    for kind in kinds or ("crt", "key"):
        shutil.copy(folder / f"{name}.{kind}", folder / "copy")
        (folder / "copy").replace(folder / f"used.{kind}")


def test_the_next_calls_go_over_another_connection(client: Client, folder: Path) -> None:
    """The one before is closed later: another thread may wait for an answer there."""
    first = client.ask()
    assert client.ask() is first
    use(folder, "server")
    assert client.ask() is first
    second = client.ask()
    assert second is not first
    assert client.ask() is second
    assert (first.open, second.open) == (True, True)
    use(folder, "client")
    client.ask()
    third = client.ask()
    assert [one.open for one in (first, second, third)] == [False, True, True]
    client.close()
    assert [one.open for one in (first, second, third)] == [False, False, False]


def test_certificates_that_cannot_be_used_leave_the_connection(
    client: Client, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why, once."""
    caplog.set_level(logging.INFO)
    first = client.ask()
    use(folder, "server", "crt")
    assert [client.ask() for _ in range(4)] == [first] * 4
    (said,) = caplog.messages
    assert said.startswith(f"h:1: {folder / 'used.crt'} and {folder / 'used.key'}: ")
    assert said.endswith("do not belong together; what was read before stays in use")
    use(folder, "server", "key")
    client.ask()
    assert client.ask() is not first
    assert caplog.messages[1:] == ["h:1: the certificates were renewed"]


def test_at_first_they_must_be_usable(client: Client, folder: Path) -> None:
    """There is no connection that could stay."""
    use(folder, "server", "crt")

    with pytest.raises(StorageError, match="do not belong together"):
        Client(client._target)
