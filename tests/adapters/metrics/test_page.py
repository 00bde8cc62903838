"""Fetching metrics from whatever answers at a port."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import LONGEST
from tuner.adapters.connection.security import Security
from tuner.adapters.metrics import page as page_module
from tuner.adapters.metrics.page import (
    LONGEST_LINE,
    MOST_LABELS,
    MOST_SAMPLES,
    expected,
    is_sane,
    read_samples,
)
from tuner.adapters.triton.metrics import metrics_page
from tuner.errors import AdapterError, InvalidInput, StorageError, TimedOut, Unreachable

PAGE = b"# TYPE nv_inference_request_failure counter\n"


@contextlib.contextmanager
def answering(*pieces: bytes) -> Iterator[int]:
    """A server that answers its first caller piece by piece; an empty one keeps it waiting."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    for piece in pieces:
                        if piece:
                            connection.sendall(piece)
                            time.sleep(0.05 if len(pieces) > 1 else 0.0)
                        else:
                            connection.recv(65536)  # until the caller gives up

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_fetch() -> None:
    """The page comes as text."""
    with answering(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + PAGE) as port:
        assert metrics_page("127.0.0.1", port).fetch(LONGEST) == PAGE.decode()


def test_fetch_from_a_closed_port() -> None:
    """The message names the port, the option and Triton's flag."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(Unreachable, match=rf"metrics port {port}.*--allow-metrics=true.*metrics="):
        metrics_page("127.0.0.1", port).fetch(LONGEST)


def test_fetch_from_a_server_that_sends_by_drops() -> None:
    """The time is for the whole page, not for each piece of it."""
    drops = [b"HTTP/1.1 200 OK\r\n\r\n"] + [b"#"] * 30

    with answering(*drops) as port, pytest.raises(TimedOut, match=f"metrics port {port}"):
        metrics_page("127.0.0.1", port).fetch(0.2)


def test_fetch_from_a_silent_server() -> None:
    """Waiting ends."""
    with answering(b"") as port, pytest.raises(TimedOut, match=f"metrics port {port}"):
        metrics_page("127.0.0.1", port).fetch(0.05)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>hello</html>",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
    ],
)
def test_fetch_from_something_else(answer: bytes) -> None:
    """A port that is not Triton's metrics is the caller's mistake."""
    with answering(answer) as port, pytest.raises(InvalidInput, match="metrics"):
        metrics_page("127.0.0.1", port).fetch(LONGEST)


def test_fetch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without end is not read to memory."""
    monkeypatch.setattr(page_module, "LARGEST_PAGE", 100)
    body = b"#" * 5000

    with (
        answering(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body) as port,
        pytest.raises(InvalidInput, match="sends more than 100 bytes"),
    ):
        metrics_page("127.0.0.1", port).fetch(LONGEST)


def test_a_page_that_turns_to_nonsense_is_nobodys_mistake() -> None:
    """It was there when the server was attached: that it is not any longer is the world's failure."""
    with (
        answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") as port,
        pytest.raises(AdapterError, match=f"port {port} answers, but not with Triton's metrics"),
    ):
        expected(lambda: metrics_page("127.0.0.1", port).fetch(LONGEST))


def test_a_token_in_the_middle_of_its_renewal_is_nobodys_mistake(tmp_path: Path) -> None:
    """Nor is a certificate: windows are lost until it can be used, and nothing ends."""
    token = tmp_path / "token"
    token.touch(0o600)
    page = metrics_page("127.0.0.1", 1, Security(metrics=True, token_file=token))

    with pytest.raises(StorageError, match="holds no token"):
        page.fetch(LONGEST)
    with pytest.raises(AdapterError, match="holds no token"):
        expected(lambda: page.fetch(LONGEST))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["m{" + ",".join(f'l{n}="1"' for n in range(MOST_LABELS + 1)) + "} 1"], "more than 64 labels"),
        (['m{l="' + "x" * LONGEST_LINE + '"} 1'], "longer than 8192"),
        (["m " + "1" * 5_000_000], "longer than 8192"),
        ([f'm{{l="{n}"}} 1' for n in range(MOST_SAMPLES + 1)], "20001 samples are more than 20000"),
        (["m " + "z" * 5000], "could not convert string to float: 'zzz"),
    ],
)
def test_what_is_too_much_is_not_parsed(lines: list[str], words: str) -> None:
    """A line with 500,000 labels would take 40 s; and a server's words are in no message as a whole."""
    with pytest.raises(AdapterError, match=words) as caught:
        list(read_samples("\n".join(lines), ["m"], server="Triton"))

    assert len(str(caught.value)) < 300


def test_what_is_not_looked_for_may_be_anything() -> None:
    """Other metrics of a server are not ours to judge."""
    lines = ["other " + "x" * 100_000, *['m{l="1"} 1'] * 3]

    assert len(list(read_samples("\n".join(lines), ["m"], server="Triton"))) == 3


@pytest.mark.parametrize("number", [math.nan, math.inf, -1.0, 1e300])
def test_numbers_that_nothing_can_have_counted(number: float) -> None:
    """Sums of them would overflow."""
    assert not is_sane(number)
    assert is_sane(0.0)
    assert is_sane(1e15)
