"""Reads the parts of targets like ``scheme://host:port/model?option=value``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from tuner.adapters.connection.credentials import refuse_credentials
from tuner.errors import InvalidInput

__all__ = [
    "WHERE_CREDENTIALS_BELONG",
    "Address",
    "Option",
    "checked_port",
    "existing_path",
    "grpc_address",
    "host_of",
    "parameters",
    "parse_address",
]

WHERE_CREDENTIALS_BELONG = "name their files: token_file=/path/token, or cert=/path and key=/path"
"""What to write instead of credentials in a target."""


class Option(NamedTuple):
    """An option of a target, which stands after its ``?``."""

    default: str
    meaning: str
    """For the table in ``docs/attach.md``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """A target in its parts."""

    host: str
    """In ASCII, as it is asked for in DNS."""
    port: int
    model: str
    options: Mapping[str, str]
    """Every known option, with its default where it was not given."""


def parse_address(text: str, *, scheme: str, port: int, options: Mapping[str, Option], form: str) -> Address:
    """Read a target.

    Args:
        text: As the user wrote it.
        scheme: What it must begin with.
        port: The port if none is given.
        options: Known options.
        form: What the user should write instead, for the error.

    Raises:
        InvalidInput: It does not have the form, holds credentials, or an option is unknown.
    """
    refuse_credentials(text, "TARGET", WHERE_CREDENTIALS_BELONG)
    try:
        url = urlsplit(text)
        several = "," in url.netloc  # adapters whose targets may name several split them before
        host, given = url.hostname, None if several else url.port
    except ValueError as error:
        raise InvalidInput("TARGET", f"'{text}': {error}", form) from None
    if several:
        problem = f"'{url.netloc}' names several servers, and this target is one server"
        raise InvalidInput("TARGET", problem, "give each a target of its own")
    model = unquote(url.path.strip("/"))
    if url.scheme != scheme or not host or not model or "/" in model or url.fragment:
        raise InvalidInput("TARGET", f"'{text}' does not name a host and a model", form)
    try:
        host = host.encode("idna").decode()
    except UnicodeError:  # Python's own resolver would raise that, too
        raise InvalidInput("TARGET", f"'{host}' is not the name of a host", form) from None
    number = port if given is None else checked_port(given, "the port ", form)
    return Address(host=host, port=number, model=model, options=parameters(url, options))


def parameters(url: SplitResult, known: Mapping[str, Option]) -> dict[str, str]:
    """Read the options after ``?`` of a target; those that are not given have their defaults.

    Args:
        url: The split target.
        known: By name.

    Raises:
        InvalidInput: An option is unknown or given twice.
    """
    options = {name: option.default for name, option in known.items()}
    for name, values in parse_qs(url.query, keep_blank_values=True).items():
        if name not in known or len(values) != 1:
            raise InvalidInput(
                "TARGET", f"option '{name}' is unknown or given twice", f"known: {', '.join(known) or 'none'}"
            )
        options[name] = values[0]
    return options


def checked_port(port: int, what: str, form: str) -> int:
    """Return a port.

    Raises:
        InvalidInput: There is no port with this number.
    """
    if not 1 <= port <= 65535:
        raise InvalidInput("TARGET", f"{what}{port} is not between 1 and 65535", form)
    return port


def grpc_address(host: str, port: int) -> str:
    """Return ``host:port`` as gRPC wants it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: str) -> str:
    """Return the host of an address as `grpc_address` makes it."""
    return address.rpartition(":")[0].strip("[]")


def existing_path(name: str, text: str, *, folder: bool, renewed: bool = False) -> Path | None:
    """Return a path that an option names, None if it names none.

    Args:
        name: Of the option.
        text: Its value.
        folder: Whether it names a folder, or a file.
        renewed: Whether to leave links as they are. A file of Kubernetes is renewed by leading its link to
            another folder; the one that it leads to now is then deleted.

    Raises:
        InvalidInput: It is not absolute, or there is no such folder or file.
    """
    if not text:
        return None
    path = Path(text)
    if not path.is_absolute():
        raise InvalidInput("TARGET", f"{name}='{text}' is not an absolute path", f"write {name}=/...")
    if not (os.path.isdir(path) if folder else os.path.isfile(path)):  # pathlib raises for a name too long
        what = "folder" if folder else "file"
        raise InvalidInput(
            "TARGET", f"{name}={path}: there is no such {what}", "give it as it is seen from here"
        )
    return path if renewed else path.resolve()
