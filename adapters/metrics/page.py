"""Fetches a server's page of metrics and finds samples in Prometheus' text format.

What a server sends is not trusted: a page has a largest size and a longest time to arrive, its lines are few
and short before they are parsed, and numbers that cannot be counts or durations are left out.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

from tuner.adapters.connection.security import Security
from tuner.adapters.connection.web import TooLarge, get
from tuner.errors import AdapterError, InvalidInput, StorageError, TimedOut, Unreachable
from tuner.printable import one_line

__all__ = ["LARGEST_PAGE", "MetricsPage", "Sample", "expected", "is_sane", "read_samples"]

LARGEST_PAGE = 16_000_000
"""A page of more bytes is refused; a thousand models of Triton need about 7 MB."""
LARGEST_NUMBER = 1e18
"""No count and no sum of microseconds is larger: that is 30,000 years."""
LONGEST_LINE = 8192
"""Characters of a sample. Those of Triton and TensorFlow Serving have a few hundred."""
MOST_LABELS = 64
"""Labels of a sample."""
MOST_SAMPLES = 20_000
"""Samples that are parsed of a page; a hundred models of TensorFlow Serving have about 8,000."""

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
            context, headers = self.security.web()
            answer = get(
                self.host,
                self.port,
                self.path,
                deadline=time.monotonic() + timeout,
                largest=LARGEST_PAGE,
                context=context,
                headers=headers,
            )
        except TimeoutError as error:
            raise TimedOut(f"{where}: no answer within {timeout:g} s; {self.fix}") from error
        except OSError as error:
            raise Unreachable(f"{where}: {error.strerror or error}; {self.fix}") from error
        except TooLarge as error:
            raise InvalidInput("metrics", f"port {self.port} sends {error}", self.fix) from error
        except http.client.HTTPException as error:
            raise InvalidInput("metrics", f"port {self.port} does not speak HTTP", self.fix) from error
        if answer.status != http.HTTPStatus.OK or not answer.body.strip().startswith(b"#"):
            problem = f"port {self.port} answers, but not with {self.server}'s metrics"
            raise InvalidInput("metrics", problem, self.fix)
        return answer.body.decode("utf-8", errors="replace")


def expected(read: Callable[[], T]) -> T:
    """Return what was read from a page that was there before.

    At opening a missing page, or a certificate or token that cannot be used, is the user's mistake. Later it
    is the world's failure: the server has gone, or files are just being renewed.

    Raises:
        AdapterError: It cannot be read.
    """
    try:
        return read()
    except (InvalidInput, StorageError) as error:
        raise AdapterError(str(error)) from error


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
        AdapterError: A line of these is malformed or too long, or they are too many.
    """
    wanted = wanted or {}
    starts = tuple(f"{name}{rest}" for name in names for rest in ("{", " ", "_total{", "_total "))
    needed = [f'{label}="{_escaped(value)}"' for label, value in wanted.items()]
    lines = [
        line for line in text.splitlines() if line.startswith(starts) and all(part in line for part in needed)
    ]
    if problem := _excess(lines):
        raise AdapterError(f"{server}'s metrics cannot be read: {problem}")
    try:
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                if all(sample.labels.get(label) == value for label, value in wanted.items()):
                    yield sample.name, sample.labels, float(sample.value)
    except (ValueError, ArithmeticError, LookupError) as error:
        raise AdapterError(f"{server}'s metrics cannot be read: {one_line(str(error), 200)}") from error


def _excess(lines: Sequence[str]) -> str:
    """Return what there is too much of to parse it; empty if nothing is.

    The parser takes a time that grows with the square of the labels of a line.
    """
    if len(lines) > MOST_SAMPLES:
        return f"{len(lines)} samples are more than {MOST_SAMPLES}"
    for line in lines:
        if len(line) > LONGEST_LINE:
            return f"a sample of {len(line)} characters is longer than {LONGEST_LINE}"
        if line.count("=") > MOST_LABELS and line.count('="') > MOST_LABELS:
            return f"a sample has more than {MOST_LABELS} labels"
    return ""


def is_sane(value: float) -> bool:
    """Whether a number can be a count or a duration."""
    return 0 <= value <= LARGEST_NUMBER


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
