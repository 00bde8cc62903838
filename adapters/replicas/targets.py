"""Targets that name several replicas: ``triton://a:8001,b:8001/model``, or one name with several addresses.

With ``replicas=dns`` the host is a name with an address for each replica, such as a headless service of
Kubernetes, and it is looked up regularly; where it has addresses of IPv4, those of IPv6 are of the same
replicas. In a list of hosts an option may have a value for each of them,
such as ``metrics=8002,9002``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tuner.adapters.backend import Backend
from tuner.adapters.connection.address import Option, grpc_address
from tuner.adapters.connection.lookup import addresses_of
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership
from tuner.errors import InvalidInput, Unreachable

__all__ = ["OPTION", "REPLICAS", "open_replicas", "replicas_of"]

OPTION = "replicas"
REPLICAS = Option("", "`dns`: the host is a name that has an address for each replica")
LOOKUP = 8.0
"""Longest wait for a name to be looked up, s: more than a first name server that is away takes, and less than
a window may be late, for windows are measured meanwhile."""


def open_replicas(target: str, port: int, open_one: Callable[[str], Backend]) -> Backend:
    """Open a target as one backend, whether it names one server or several.

    Args:
        target: As the user wrote it.
        port: The port of a host that is given without one.
        open_one: Opens the target of one server.

    Raises:
        InvalidInput: The target cannot be used.
        AdapterError: No server can be reached.
    """
    find = replicas_of(target, port)
    return open_one(target) if find is None else ReplicaGroup(Membership(target, find, open_one))


def replicas_of(target: str, port: int) -> Callable[[], Sequence[str]] | None:
    """Return what finds the targets of the replicas that a target names, None if it names one server.

    Args:
        target: As the user wrote it.
        port: The port of a host that is given without one.

    Raises:
        InvalidInput: The option ``replicas`` is neither missing nor ``dns``, or the port of the name is none.
    """
    url = urlsplit(target)
    options = parse_qsl(url.query, keep_blank_values=True)
    way = dict(options).get(OPTION)
    if way not in (None, "dns"):
        raise InvalidInput(
            "TARGET", f"{OPTION}='{way}' is unknown", "write replicas=dns, or hosts with commas"
        )
    hosts = url.netloc.split(",")
    if way is None:
        return (lambda: _listed(target, hosts)) if len(hosts) > 1 else None
    rest = urlencode([(name, value) for name, value in options if name != OPTION], safe="/")
    try:
        name, number = url.hostname or "", url.port or port
    except ValueError as error:
        raise InvalidInput(
            "TARGET", f"'{target}': {error}", "write triton://name:8001/model?replicas=dns"
        ) from None

    def look_up() -> list[str]:
        try:
            found = addresses_of(name, number, LOOKUP)
        except OSError as error:
            raise Unreachable(f"{name} cannot be looked up: {error.strerror or error}") from error
        of_4 = [address for address in found if address.family == socket.AF_INET]
        addresses = sorted({address.host for address in of_4 or found})  # a replica may have one of each
        return [urlunsplit(url._replace(netloc=grpc_address(a, number), query=rest)) for a in addresses]

    return look_up


def _listed(target: str, hosts: Sequence[str]) -> list[str]:
    """Return one target for each host; of an option with as many values as hosts each gets its own."""
    url = urlsplit(target)
    options = parse_qsl(url.query, keep_blank_values=True)
    targets = []
    for place, host in enumerate(hosts):
        if not host:
            raise InvalidInput(
                "TARGET", f"'{target}' names an empty host", "write triton://a:8001,b:8001/model"
            )
        own = [(name, _share(value, place, len(hosts))) for name, value in options]
        targets.append(urlunsplit(url._replace(netloc=host, query=urlencode(own, safe="/"))))
    return targets


def _share(value: str, place: int, count: int) -> str:
    parts = value.split(",")
    return parts[place] if len(parts) == count else value
