"""Finds out whether a server runs on this machine, and in which processes."""

from __future__ import annotations

import os
import socket

import psutil

__all__ = ["is_local", "listening_processes", "local_cores"]


def is_local(host: str) -> bool:
    """Whether a name or address is one of this machine's."""
    try:
        resolved = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    return any(address in own or address.startswith("127.") or address == "::1" for address in resolved)


def local_cores(host: str) -> int | None:
    """Return the cores that this process may use if the host is this machine, else None."""
    return len(os.sched_getaffinity(0)) if is_local(host) else None


def listening_processes(host: str, port: int) -> tuple[int, ...]:
    """Return the ids of the processes that listen on a port of this machine; empty if none is visible.

    A server in a container or of another user cannot be seen without rights.
    """
    if not is_local(host):
        return ()
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return ()
    listening = [entry for entry in connections if entry.status == psutil.CONN_LISTEN and entry.pid]
    # laddr is a named tuple (address, port), or empty
    return tuple(sorted({entry.pid for entry in listening if entry.pid and entry.laddr[1:] == (port,)}))
