"""Speaks with the control port of a dispatcher."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tuner.adapters.connection.address import (
    Option,
    checked_port,
    existing_path,
    grpc_address,
    parameters,
)
from tuner.adapters.connection.credentials import TokenFile, is_loopback, refuse_credentials
from tuner.errors import AdapterError, InvalidInput, ReadOnly, Refused, TimedOut, Unreachable
from tuner.printable import one_line

__all__ = [
    "LONGEST_CHANGE",
    "OPTIONS",
    "PORT",
    "DispatchClient",
    "DispatchTarget",
    "parse_target",
    "place_of",
]

FORM = "write dispatch://127.0.0.1:9102?token_file=/path/token"
PORT = 9102
OPTIONS = {
    "token_file": Option("", "file of its token, without which it is only observed; on this machine only")
}
LARGEST = 4_000_000
"""Bytes of an answer."""
FORBIDDEN = (401, 403)
LONGEST_CHANGE = 120.0
"""s that the dispatcher may take to change its knobs: it compiles a policy that it never ran."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchTarget:
    """The control port of a dispatcher."""

    url: str
    """As the user wrote it."""
    host: str
    port: int
    token_file: Path | None

    @property
    def address(self) -> str:
        """As ``host:port``."""
        return grpc_address(self.host, self.port)


def parse_target(text: str) -> DispatchTarget:
    """Read a target.

    Raises:
        InvalidInput: It does not have the form, or a token would be sent over a network in the clear.
    """
    host, port = place_of(text)
    named = parameters(urlsplit(text), OPTIONS)["token_file"]
    token = existing_path("token_file", named, folder=False, renewed=True)
    if token is not None and not is_loopback(host):
        problem = f"the token would be sent to {host} in the clear"
        raise InvalidInput(
            "TARGET token_file", problem, "run the tuner beside the dispatcher, or in a tunnel"
        )
    return DispatchTarget(url=text, host=host, port=port, token_file=token)


def place_of(text: str) -> tuple[str, int]:
    """Return the host and the port that a target names; its files need not be there.

    Raises:
        InvalidInput: It does not have the form.
    """
    refuse_credentials(text, "TARGET", FORM)
    try:
        url = urlsplit(text)
        host, given = url.hostname, url.port
    except ValueError as error:
        raise InvalidInput("TARGET", f"'{text}': {error}", FORM) from None
    if url.scheme != "dispatch" or not host or url.path.strip("/") or url.fragment:
        raise InvalidInput("TARGET", f"'{text}' does not name the control port of a dispatcher", FORM)
    parameters(url, OPTIONS)  # refuses others
    return host, PORT if given is None else checked_port(given, "the port ", FORM)


class DispatchClient:
    """Asks a dispatcher what it does, and sets its knobs; each call has a connection of its own.

    Args:
        target: Where it is.
        timeout: Longest wait for an answer to a question, s; a change may take longer.
    """

    def __init__(self, target: DispatchTarget, timeout: float) -> None:
        self._target = target
        self._timeout = timeout
        self._token = None if target.token_file is None else TokenFile(target.token_file, "token_file")

    def state(self) -> dict[str, Any]:
        """Return what there is, how it is set, and what was done.

        Raises:
            AdapterError: It cannot be asked, or is no dispatcher.
        """
        status, answer = self._ask("GET", "/v1/state", self._timeout)
        if status != http.HTTPStatus.OK or answer.get("server") != "servetune-dispatch":
            raise Unreachable(f"{self._target.address} is no control port of a dispatcher; {FORM}")
        return answer

    def set(self, knobs: Mapping[str, float]) -> None:
        """Set knobs: all of them or none.

        Raises:
            ReadOnly: The dispatcher has no token, or another one.
            Refused: It cannot use the values.
            AdapterError: It cannot be asked.
        """
        status, answer = self._ask("POST", "/v1/knobs", LONGEST_CHANGE, json.dumps(dict(knobs)))
        words = one_line(str(answer.get("detail", "")))
        if status in FORBIDDEN:
            raise ReadOnly(f"the dispatcher takes no changes: {words}; name the token with token_file=")
        if status != http.HTTPStatus.OK:
            raise Refused(f"the dispatcher refused the knobs: {words}")

    def _ask(
        self, method: str, path: str, timeout: float, body: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        target = self._target
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.token()}"
        connection = http.client.HTTPConnection(target.host, target.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            found = json.loads(response.read(LARGEST))
        except TimeoutError as error:
            raise TimedOut(f"{target.address}: no answer in time") from error
        except OSError as error:
            problem = f"{target.address}: {error.strerror or error}"
            raise Unreachable(f"{problem}; is the dispatcher running, with listen.control?") from error
        except (ValueError, RecursionError, http.client.HTTPException) as error:
            raise Unreachable(f"{target.address} is no control port of a dispatcher; {FORM}") from error
        finally:
            connection.close()
        if not isinstance(found, dict):
            raise AdapterError(f"{target.address}: an answer of an unknown form")
        return response.status, found
