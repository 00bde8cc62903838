"""Targets of live servers: ``SCHEME://HOST[:PORT]/MODEL?OPTION=VALUE``, reached over gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tuner.adapters.connection.address import Option, checked_port, grpc_address, parse_address
from tuner.adapters.connection.security import SECURITY, Security, parse_security
from tuner.duration import parse_duration
from tuner.errors import InvalidInput
from tuner.printable import one_line

__all__ = [
    "LOADING",
    "LOAD_TIMEOUT",
    "LONGEST_LOAD",
    "LiveTarget",
    "TargetForm",
    "parse_live_target",
    "port_option",
]

LOAD_TIMEOUT = 60.0
"""How long a server may take to load a changed model, s."""
LONGEST_LOAD = 3600.0
"""Longest value of that, s: a target waits for its change, and measures nothing meanwhile."""
LOADING = {
    "load_timeout": Option(
        f"{LOAD_TIMEOUT:g}s", "how long it may take to load a changed model, or to come back from a restart"
    )
}
"""The option that says so."""

LONGEST_PORT = 18
"""Digits of a port, far beyond the largest: Python reads no number of thousands of digits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetForm:
    """How the targets of one scheme are written."""

    scheme: str
    port: int
    """The gRPC port of a server that is given without one."""
    options: Mapping[str, Option]
    """The scheme's own options; `LOADING` and those of :mod:`.security` come on top."""
    example: str
    """A target in this form."""
    replicated: bool = False
    """Whether a target may name several servers; see :mod:`tuner.adapters.replicas.targets`."""

    @property
    def hint(self) -> str:
        """What to tell a user whose target does not have this form."""
        return f"write {self.example}"

    @property
    def all_options(self) -> dict[str, Option]:
        """Every option that a target may have."""
        return {**self.options, **LOADING, **SECURITY}


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveTarget:
    """One model on one server. An adapter adds its own options."""

    url: str
    """As the user wrote it."""
    host: str
    port: int
    """Of the gRPC service."""
    model: str
    load_timeout: float = LOAD_TIMEOUT
    """How long the server may take to load a changed model, s."""
    security: Security = field(default_factory=Security)

    @property
    def address(self) -> str:
        """``host:port`` of the gRPC service, as gRPC wants it."""
        return grpc_address(self.host, self.port)

    def common(self) -> dict[str, Any]:
        """Return the fields that all targets have, by name."""
        return {one.name: getattr(self, one.name) for one in fields(LiveTarget)}


def parse_live_target(text: str, form: TargetForm) -> tuple[LiveTarget, Mapping[str, str]]:
    """Read what the targets of all schemes have in common.

    Args:
        text: As the user wrote it.
        form: How it should be written.

    Returns:
        The target, and its options.

    Raises:
        InvalidInput: It does not have the form, holds credentials, or names a file that is not there.
    """
    address = parse_address(
        text, scheme=form.scheme, port=form.port, options=form.all_options, form=form.hint
    )
    target = LiveTarget(
        url=text,
        host=address.host,
        port=address.port,
        model=address.model,
        load_timeout=_load_timeout(address.options["load_timeout"]),
        security=parse_security(address.options),
    )
    return target, address.options


def _load_timeout(text: str) -> float:
    """Read how long a server may take to load a model, s.

    Raises:
        InvalidInput: It is no duration, or out of bounds.
    """
    seconds = parse_duration(text, "TARGET load_timeout")
    if not 1.0 <= seconds <= LONGEST_LOAD:
        raise InvalidInput(
            "TARGET", f"load_timeout='{text}' is not between 1s and 1h", "write load_timeout=5m"
        )
    return seconds


def port_option(name: str, text: str, form: TargetForm, fix: str) -> int:
    """Read an option that names a port.

    Args:
        name: Of the option.
        text: Its value.
        form: How the target should be written.
        fix: What to tell a user whose value is no number.

    Raises:
        InvalidInput: It is no port.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= LONGEST_PORT):
        raise InvalidInput("TARGET", f"{name}='{one_line(text, 40)}' is not a port", fix)
    return checked_port(int(text), f"{name}=", form.hint)
