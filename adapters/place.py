"""Which model on which servers a target means, however it is written.

Two targets for one model would be tuned against each other, so the daemon compares their places.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from tuner.adapters.backend import Description
from tuner.adapters.connection.address import grpc_address, parse_address
from tuner.adapters.registry import scheme_of
from tuner.adapters.replicas.targets import OPTION, REPLICAS
from tuner.adapters.tfserving.target import FORM as TFSERVING
from tuner.adapters.triton.target import FORM as TRITON

__all__ = ["Place", "places_of", "turned_places"]

KNOWN = {form.scheme: form for form in (TRITON, TFSERVING)}
"""Scheme -> how its targets are written."""


class Place(NamedTuple):
    """One model on one server."""

    scheme: str
    server: str
    """As ``host:port``."""
    model: str
    """Empty where the server is tuned as a whole."""

    def __str__(self) -> str:
        return f"{self.model} on {self.server}" if self.model else self.server


def places_of(target: str) -> frozenset[Place]:
    """Return where the model of a target is. A simulated target has no place: each opens a server of its own.

    Names are not looked up, so two names of one server count as two servers. Of a target with an unknown
    scheme only its adapter knows which part names the server, so the whole of it counts as one place.

    Raises:
        InvalidInput: No adapter has its scheme, it names no server, no model or an option that there is not,
            or it holds credentials.
    """
    scheme = scheme_of(target)
    if scheme == "sim":
        return frozenset()
    if scheme == "dispatch":
        from tuner.adapters.dispatch.client import place_of  # with numpy and more: only where there is one

        host, port = place_of(target)
        return frozenset([Place(scheme, grpc_address(_plain(host), port), "")])
    if scheme not in KNOWN:
        return frozenset([Place(scheme, target, "")])
    form = KNOWN[scheme]
    options = {**form.all_options, OPTION: REPLICAS} if form.replicated else form.all_options
    hosts, slash, rest = target.partition("://")[2].partition("/")
    found = [
        parse_address(
            f"{scheme}://{host}{slash}{rest}", scheme=scheme, port=form.port, options=options, form=form.hint
        )
        for host in hosts.split(",")
    ]
    return frozenset(Place(scheme, grpc_address(_plain(one.host), one.port), one.model) for one in found)


def turned_places(target: str, described: Description) -> frozenset[Place]:
    """Return where the models are that a target turns: those of an ensemble, else its own.

    Args:
        target: As the user wrote it.
        described: What its server says of it.

    Raises:
        InvalidInput: As :func:`places_of`.
    """
    places = places_of(target)
    if not described.turns:
        return places
    return frozenset(place._replace(model=model) for place in places for model in described.turns)


def _plain(host: str) -> str:
    """Return the one way to write a host: the shortest form of an address, a name without its final dot."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        name = host.rstrip(".")  # urlsplit has made it lower case
        return "127.0.0.1" if name == "localhost" else name
