"""The proxy that pretends a bad network."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tuner.testing.proxy import Mode, Proxy


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(4096):
                        connection.sendall(data)
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(60)


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        yield connection


def said(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(4096)


def test_it_passes_everything_on(echo: int) -> None:
    """In both directions, over several connections."""
    with Proxy(echo) as proxy, connected(proxy.port) as one, connected(proxy.port) as other:
        assert said(one, b"a") == b"a"
        assert said(other, b"b") == b"b"
        assert said(one, b"c") == b"c"


def test_what_hangs_comes_late(echo: int) -> None:
    """Nothing is lost, of open connections and of new ones."""
    with Proxy(echo) as proxy, connected(proxy.port) as one:
        said(one, b"a")
        proxy.mode = Mode.HANG
        with connected(proxy.port) as new:
            one.sendall(b"b")
            new.sendall(b"c")
            for silent in (one, new):
                silent.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    silent.recv(10)
                silent.settimeout(60)
            proxy.mode = Mode.PASS
            assert one.recv(10) == b"b"
            assert new.recv(10) == b"c"


def test_what_is_cut_is_reset(echo: int) -> None:
    """Open connections end at once, new ones too; later ones work again."""
    with Proxy(echo) as proxy, connected(proxy.port) as one:
        said(one, b"a")
        proxy.mode = Mode.CUT
        with pytest.raises(ConnectionError):
            said(one, b"b") or one.recv(10) or ended()
        with pytest.raises(ConnectionError), connected(proxy.port) as new:
            said(new, b"c") or ended()
        proxy.mode = Mode.PASS
        with connected(proxy.port) as new:
            assert said(new, b"d") == b"d"


def ended() -> bytes:
    """A connection that was closed rather than reset is as good."""
    raise ConnectionError


def test_it_says_what_it_is_told(echo: int) -> None:
    """To each connection, which is closed then."""
    with Proxy(echo) as proxy:
        proxy.speak(b"nonsense")
        with connected(proxy.port) as one:
            assert said(one, b"a") == b"nonsense"
            assert one.recv(10) == b""


def test_it_never_comes_to_an_end(echo: int) -> None:
    """Byte by byte, until the mode changes."""
    with Proxy(echo) as proxy:
        proxy.drip(b"begun", b"xy")
        with connected(proxy.port) as one:
            heard = said(one, b"a")
            while len(heard) < 8:
                heard += one.recv(1)
            assert heard.startswith(b"begunxyx"[: len(heard)])
            proxy.mode = Mode.PASS
            while one.recv(10):
                pass


def test_a_server_that_is_away(echo: int) -> None:
    """Its proxy ends the connection, and lives on."""
    with Proxy(1) as proxy, connected(proxy.port) as one:
        assert one.recv(10) == b""
        assert proxy.mode is Mode.PASS
