"""A web server that does with its callers what it likes, piece by piece."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator

__all__ = ["ENDED_SOON", "endless", "hostile"]

ENDED_SOON = 30.0
"""What ends within this time, s, does not go on for ever, however busy the machine is."""
PAUSE = 0.01
"""Between two pieces, s: far below the timeouts of those who ask."""


def endless(first: bytes, then: bytes) -> Callable[[], Iterable[bytes]]:
    """An answer that goes on until its reader has had enough."""
    return lambda: itertools.chain([first], itertools.repeat(then))


@contextlib.contextmanager
def hostile(
    pieces: Callable[[], Iterable[bytes]], heard: list[bytes] | None = None, *, pause: float = PAUSE
) -> Iterator[int]:
    """A server on a port of this machine that answers everybody with the same pieces.

    Args:
        pieces: Returns the pieces of an answer.
        heard: Is filled with what callers say first.
        pause: Between two pieces, s.
    """
    over = threading.Event()

    def answer(caller: socket.socket) -> None:
        with caller, contextlib.suppress(OSError):
            said = caller.recv(65536)
            if heard is not None:
                heard.append(said)
            for piece in pieces():
                caller.sendall(piece)
                if over.wait(pause):
                    return

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = server.accept()
                threading.Thread(target=answer, args=(caller,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)
