"""Fetches a server's page of metrics and finds samples in Prometheus' text format.

What a server sends is not trusted: a page has a largest size and a longest time to arrive, and numbers that
cannot be counts or durations are left out.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

from tuner.adapters.connection.security import Security
from tuner.errors import AdapterError, InvalidInput, TimedOut, Unreachable

__all__ = ["MetricsPage", "Sample", "expected", "get", "is_sane", "read_bounded", "read_samples"]

LARGEST_PAGE = 16_000_000
"""A page of more bytes is refused; a thousand models of Triton need about 7 MB."""
LARGEST_NUMBER = 1e18
"""No count and no sum of microseconds is larger: that is 30,000 years."""
CHUNK = 65536

T = TypeVar("T")
Sample = tuple[str, Mapping[str, str], float]
"""Name, labels and value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsPage:
    """Where a server's metrics are, and what a user can do who has none there."""

    server: str
    """The server's name, for messages."""
    host: str
    port: int
    path: str
    fix: str
    """What the user can do if there is no such page."""
    security: Security = field(default_factory=Security)

    def fetch(self, timeout: float) -> str:
        """Fetch the page.

        Args:
            timeout: Longest wait for all of it, s.

        Raises:
            Unreachable: The port is closed.
            TimedOut: It did not answer in time.
            InvalidInput: What answers there is not this server's metrics.
        """
        where = f"metrics port {self.port}"
        try:
            status, body = get(self.host, self.port, self.path, timeout, self.security)
        except TimeoutError as error:
            raise TimedOut(f"{where}: no answer within {timeout:g} s; {self.fix}") from error
        except OSError as error:
            raise Unreachable(f"{where}: {error.strerror or error}; {self.fix}") from error
        except http.client.HTTPException as error:
            raise InvalidInput("metrics", f"port {self.port} does not speak HTTP", self.fix) from error
        found = status == http.HTTPStatus.OK and len(body) <= LARGEST_PAGE
        if not found or not body.strip().startswith(b"#"):
            problem = f"port {self.port} answers, but not with {self.server}'s metrics"
            raise InvalidInput("metrics", problem, self.fix)
        return body.decode("utf-8", errors="replace")


def expected(read: Callable[[], T]) -> T:
    """Return what was read from a page that was there before.

    At opening a missing page is the user's mistake. Later it is the server's failure.

    Raises:
        AdapterError: It cannot be read.
    """
    try:
        return read()
    except InvalidInput as error:
        raise AdapterError(str(error)) from error


def get(
    host: str, port: int, path: str, timeout: float, security: Security | None = None
) -> tuple[int, bytes]:
    """Return status and body of what a server answers to a GET.

    Args:
        host: Name or address.
        port: Its port.
        path: What to get.
        timeout: Longest wait for all of it, s.
        security: How to reach it; by default in the clear.

    Raises:
        TimeoutError: It did not come in time.
        OSError: The port is closed.
        HTTPException: Who answers does not speak HTTP.
    """
    context, headers = security.web() if security is not None else (None, {})
    connection: http.client.HTTPConnection
    if context is not None:
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, read_bounded(answer, LARGEST_PAGE, time.monotonic() + timeout)
    finally:
        connection.close()


def read_bounded(answer: http.client.HTTPResponse, largest: int, deadline: float) -> bytes:
    """Read a body until it is complete, larger than it may be, or late: a server may send it drop by drop.

    Raises:
        TimeoutError: The time is over.
    """
    body = bytearray()
    while len(body) <= largest and (chunk := answer.read1(CHUNK)):
        body += chunk
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(body)


def read_samples(
    text: str, names: Sequence[str], wanted: Mapping[str, str] | None = None, *, server: str
) -> Iterator[Sample]:
    """Find the samples of some metrics.

    Only their lines are parsed: Triton's page has about 55 lines for each model of the server.

    Args:
        text: The page.
        names: Names of samples, as they stand before the brace; counters also with ``_total``.
        wanted: Labels that a sample must have with these values.
        server: Its name, for the error.

    Raises:
        AdapterError: A line of these is malformed.
    """
    wanted = wanted or {}
    starts = tuple(f"{name}{rest}" for name in names for rest in ("{", " ", "_total{", "_total "))
    needed = [f'{label}="{_escaped(value)}"' for label, value in wanted.items()]
    lines = [
        line for line in text.splitlines() if line.startswith(starts) and all(part in line for part in needed)
    ]
    try:
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                if all(sample.labels.get(label) == value for label, value in wanted.items()):
                    yield sample.name, sample.labels, float(sample.value)
    except (ValueError, KeyError, IndexError) as error:
        raise AdapterError(f"{server}'s metrics cannot be read: {error}") from error


def is_sane(value: float) -> bool:
    """Whether a number can be a count or a duration."""
    return 0 <= value <= LARGEST_NUMBER


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
