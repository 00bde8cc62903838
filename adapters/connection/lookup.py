"""Looks the name of a host up, and waits no longer for that than it may take."""

from __future__ import annotations

import queue
import socket
import threading
from typing import NamedTuple

__all__ = ["Address", "addresses_of"]


class Address(NamedTuple):
    """One of the addresses that a name has."""

    family: int
    """Such as ``socket.AF_INET``."""
    host: str
    """Written as numbers."""


def addresses_of(host: str, port: int, seconds: float) -> list[Address]:
    """Return the addresses of a host, in the order in which they are to be tried.

    The system's own lookup knows no deadline, so it has a thread of its own, which is left to itself if it
    takes longer.

    Args:
        host: Its name or address.
        port: What is to be reached there.
        seconds: How long the lookup may take.

    Raises:
        TimeoutError: It took longer.
        OSError: The name has no address, or is none.
    """
    found: queue.Queue[list[Address] | OSError | UnicodeError] = queue.Queue()

    def look_up() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put([Address(entry[0], str(entry[4][0])) for entry in entries])
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that cannot be written in DNS
            found.put(error)

    threading.Thread(target=look_up, name="lookup", daemon=True).start()
    try:
        answer = found.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"the name {host} was not found in time") from None
    if isinstance(answer, UnicodeError):
        raise OSError(f"{host} is no name of a host") from answer
    if isinstance(answer, OSError):
        raise answer
    return answer
