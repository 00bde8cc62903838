"""A service-level indicator: the latency that users see, which a query to a Prometheus server gives.

The latency that a gateway or the clients measure contains the network, retries and queues in front of the
server; the server's own latency does not. The query gives the latency in seconds as one number. In it

* ``{window}`` stands for the length of the window, such as ``10s``. A range in brackets then begins where the
  window begins, so that it contains nothing of the configuration before.
* ``{quantile}`` stands for 0.5, 0.95 and 0.99 in turn. Without it the query gives the SLO's own statistic.

::

    histogram_quantile({quantile}, sum by (le) (rate(gateway_seconds_bucket{model="mlp"}[{window}])))

A range must contain two scrapes, so a window should last several scrape intervals.
"""

from __future__ import annotations

import http.client
import math
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

from tuner.adapters.connection.credentials import check_not_in_the_clear, read_secret, refuse_credentials
from tuner.adapters.connection.web import HTTP_PORTS, TooLarge, WebAnswer, get, proxy_for
from tuner.errors import AdapterError, InvalidInput, StorageError, TimedOut, Unreachable
from tuner.files.renewed import Renewed
from tuner.measurement import NOT_KNOWN, QUANTILES, STATISTICS, UNANSWERED, Measurement
from tuner.printable import one_line
from tuner.setting import Sli

__all__ = ["PrometheusIndicator", "make_indicator", "read_number"]

LARGEST_ANSWER = 1_000_000
"""Bytes."""
NO_VALUE = "the service-level indicator had no value for this window"


class NotPrometheus(InvalidInput):
    """What answers is no Prometheus server: at the start a mistake, later perhaps a gateway's own page."""


@dataclass(frozen=True, kw_only=True)
class PrometheusIndicator:
    """Asks a Prometheus server for the latency of a window.

    Raises:
        InvalidInput: The URL or the query cannot be used, or the token would be sent in the clear.
    """

    url: str
    """Such as ``http://prometheus:9090``; a path before ``/api`` is kept."""
    query: str
    statistic: str = "p95"
    """The statistic that the query gives if it does not contain ``{quantile}``."""
    token: Renewed[str] | None = field(default=None, repr=False)
    """Bearer token; sent by TLS or within this machine only, and never shown. None: none is sent."""
    timeout: float = 5.0
    """Longest wait for the answers of a window, all together, s."""

    def __post_init__(self) -> None:
        fix = "name a file with a token: --sli-token-file, or sli.token_file"
        refuse_credentials(self.url, "--sli-prometheus", fix)
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # such as a port that is no number
            usable = False
        if not usable:
            problem = f"'{self.url}' is not a web address"
            raise InvalidInput("--sli-prometheus", problem, "write one such as http://prometheus:9090")
        if self.token is not None:
            check_not_in_the_clear(self.url, "--sli-token-file")
        if not self.query.strip():
            raise InvalidInput("--sli-query", "is empty", "write a PromQL expression that gives seconds")

    def check(self, window: float) -> None:
        """Ask once, so that mistakes show before tuning begins. That there is no value yet is no mistake.

        Raises:
            InvalidInput: The query is refused, or gives more than one number.
            AdapterError: The server cannot be asked.
        """
        self.read(window)

    def read(self, window: float) -> dict[str, float]:
        """Return the statistics of the window that has just ended, s; NaN where there is no value.

        Args:
            window: Its length, s.

        Raises:
            InvalidInput: The query is refused, or gives more than one number, or it is no Prometheus server.
            Unreachable: Nobody answers, or the server is in trouble or overloaded (500 and above, 429).
            TimedOut: The answer does not come in time.
        """
        query = self.query.replace("{window}", f"{max(round(window * 1e3), 1)}ms")
        deadline = time.monotonic() + self.timeout
        if "{quantile}" not in query:
            return {self.statistic: self._ask(query, deadline)}
        return {
            name: self._ask(query.replace("{quantile}", f"{share:g}"), deadline)
            for name, share in QUANTILES.items()
        }

    def applied(self, measurement: Measurement) -> Measurement:
        """Return a measurement with the indicator's latencies in place of the server's or the clients'.

        Without a value the window is disturbed: the latencies of two sources must not be mixed. So it is
        while the server is away, or somebody else answers for it, such as a gateway.

        Raises:
            InvalidInput: The query is refused, or gives more than one number.
        """
        problem = NO_VALUE
        try:
            found = self.read(measurement.seconds)
        except (AdapterError, NotPrometheus) as error:
            found, problem = {self.statistic: NOT_KNOWN}, f"the service-level indicator is not known: {error}"
        unknown = {f"latency_{name}": NOT_KNOWN for name in STATISTICS} | {"cut_off": NOT_KNOWN}
        changes: dict[str, Any] = unknown | {f"latency_{name}": value for name, value in found.items()}
        # Where no request was answered there is no latency: that is no second reason.
        if UNANSWERED not in measurement.disturbed and any(map(math.isnan, found.values())):
            changes["disturbed"] = (*measurement.disturbed, problem)
        return replace(
            measurement, **changes, timed=math.inf, quantiles_from="indicator", quantiles_mixed=False
        )

    def _ask(self, query: str, deadline: float) -> float:
        try:
            answer = self._get(query, deadline)
        except TimeoutError as error:
            raise TimedOut(f"{self.url}: no answer within {self.timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            hint = "; its certificate is not trusted" if isinstance(error, ssl.SSLError) else ""
            problem = f"it sends {error}" if isinstance(error, TooLarge) else str(error)
            raise Unreachable(f"{self.url}: {problem}{hint}; is this the Prometheus server?") from error
        in_trouble = answer.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR
        if in_trouble or answer.status == http.HTTPStatus.TOO_MANY_REQUESTS:
            raise Unreachable(f"{self.url} says: {_words(answer)}")
        if answer.status in (http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.UNPROCESSABLE_ENTITY):
            raise InvalidInput("--sli-query", f"{self.url} says: {_words(answer)}", query)
        if answer.status != http.HTTPStatus.OK:
            raise NotPrometheus("--sli-prometheus", f"{self.url} says: {_words(answer)}")
        return read_number(answer, query)

    def _get(self, query: str, deadline: float) -> WebAnswer:
        url: SplitResult = urlsplit(self.url)
        headers = {"Accept": "application/json"}
        if self.token is not None:
            with suppress(InvalidInput, StorageError):  # the last one that could be used stays in use
                self.token.look()
            headers["Authorization"] = f"Bearer {self.token.value}"
        return get(
            url.hostname or "",
            url.port or HTTP_PORTS[url.scheme],
            f"{url.path.rstrip('/')}/api/v1/query?{urlencode({'query': query})}",
            deadline=deadline,
            largest=LARGEST_ANSWER,
            context=ssl.create_default_context() if url.scheme == "https" else None,
            headers=headers,
            proxy=proxy_for(url),
        )


def make_indicator(sli: Sli | None, statistic: str) -> PrometheusIndicator | None:
    """Return what asks for a service-level indicator; None if there is none.

    The token is read now, and again when its file is replaced.

    Args:
        sli: Where it is asked.
        statistic: What the query gives if it does not say ``{quantile}``.

    Raises:
        InvalidInput: The address or the query cannot be used, or the token can be read by everybody.
        StorageError: The token cannot be read.
    """
    if sli is None:
        return None
    token, path = None, sli.token_file
    if path is not None:
        token = Renewed(partial(read_secret, path, "SLI token file"), [path])
    return PrometheusIndicator(url=sli.prometheus, query=sli.query, statistic=statistic, token=token)


def read_number(answer: WebAnswer, query: str) -> float:
    """Return the one number of an answer, NaN if it has none.

    Raises:
        InvalidInput: It has more than one.
        NotPrometheus: It is not in Prometheus' form.
    """
    try:
        numbers = answer.read(_numbers)
    except ValueError as error:
        raise NotPrometheus("--sli-prometheus", "what answers there is not a Prometheus server") from error
    if len(numbers) > 1:
        fix = "make one of them, such as with sum by (le) (...)"
        raise InvalidInput("--sli-query", f"gives {len(numbers)} series", f"{fix}: {query}")
    return numbers[0] if numbers and 0 <= numbers[0] < math.inf else NOT_KNOWN


def _numbers(body: Any) -> list[float]:
    kind, result = body["data"]["resultType"], body["data"]["result"]
    values = [result] if kind == "scalar" else [series["value"] for series in result]
    if not all(isinstance(value[1], str) for value in values):  # of `true` a number would be made
        raise TypeError("a value is no string")
    return [float(value[1]) for value in values]


def _words(answer: WebAnswer) -> str:
    """Return the reason why Prometheus refuses a query."""
    try:
        return one_line(answer.read(lambda body: str(body["error"])), 300)
    except ValueError:
        return one_line(f"{answer.status} {answer.reason}", 300)
