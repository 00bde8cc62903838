"""Finds out whether a server runs on this machine, and in which processes."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import psutil

__all__ = ["is_local", "listening_processes", "local_cores"]

FORWARDERS = frozenset({"kubectl", "oc", "ssh", "sshd", "sshd-session"})
"""Names of processes that forward a port of this machine to a server elsewhere."""
CONTAINER_PORTS = frozenset(
    {"docker-proxy", "pasta", "pasta.avx2", "rootlesskit", "rootlessport", "slirp4netns"}
)
"""Names of processes that forward a port of this machine to a container on it."""


def is_local(host: str) -> bool:
    """Whether a name or address is one of this machine's."""
    try:
        resolved = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    try:
        own = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    except OSError:  # a sandbox without AF_NETLINK: only loopback is known to be ours
        own = set()
    return any(address in own or address.startswith("127.") or address == "::1" for address in resolved)


def local_cores(host: str, port: int) -> int | None:
    """Return the cores that this process may use if the server on a port is on this machine, else None."""
    if not is_local(host):
        return None
    names = set(_listeners(host, port).values())
    return None if names and names <= FORWARDERS else len(os.sched_getaffinity(0))


def listening_processes(host: str, port: int) -> tuple[int, ...]:
    """Return the ids of the processes that listen on a port of this machine; empty if none is visible.

    A server in a container or of another user cannot be seen without rights, and one behind a process that
    only forwards a port is not that process.
    """
    found = _listeners(host, port)
    return tuple(sorted(pid for pid, name in found.items() if name not in FORWARDERS | CONTAINER_PORTS))


def _listeners(host: str, port: int) -> dict[int, str]:
    """Return the id and name of each visible process that listens on a port of this machine."""
    if not is_local(host):
        return {}
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return {}
    listening = [entry for entry in connections if entry.status == psutil.CONN_LISTEN and entry.pid]
    found = {}
    for entry in listening:
        if entry.pid and entry.laddr[1:] == (port,):  # laddr is a named tuple (address, port), or empty
            with suppress(psutil.Error):  # it has ended
                found[entry.pid] = psutil.Process(entry.pid).name()
    return found
