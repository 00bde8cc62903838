"""Reading a latency from Prometheus, tested against a server that answers like it."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.adapters.connection.hostile_server import hostile
from tests.builders import measurement
from tuner.adapters.connection.web import WebAnswer
from tuner.errors import InvalidInput, TimedOut, Unreachable
from tuner.files.renewed import Renewed
from tuner.measurement import UNANSWERED
from tuner.profiler import indicator as module
from tuner.profiler.indicator import PrometheusIndicator, make_indicator
from tuner.setting import Sli


def held(token: str) -> Renewed[str]:
    """A token that no file holds."""
    return Renewed(lambda: token, [])


class Prometheus:
    """Answers instant queries; remembers them."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.tokens: list[str | None] = []
        self.series: list[list[str]] = [["0.030"]]
        self.refuse = ""
        self.status = 200
        self.body: bytes | None = None
        self.delay = 0.0
        prometheus = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(prometheus.delay)
                prometheus.queries.append(parse_qs(urlsplit(self.path).query)["query"][0])
                prometheus.tokens.append(self.headers.get("Authorization"))
                self.send_response(400 if prometheus.refuse else prometheus.status)
                self.end_headers()
                self.wfile.write(prometheus.answer())

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self) -> bytes:
        if self.body is not None:
            return self.body
        if self.refuse:
            return json.dumps({"status": "error", "error": self.refuse}).encode()
        result = [{"metric": {}, "value": [1.0, value]} for values in self.series for value in values]
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    found = Prometheus()
    threading.Thread(target=found.server.serve_forever, daemon=True).start()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_the_slos_statistic(prometheus: Prometheus) -> None:
    """A query without a quantile gives the SLO's own; the range is as long as the window."""
    indicator = PrometheusIndicator(url=prometheus.url, query="gateway[{window}]", statistic="p99")

    found = indicator.applied(measurement(p95=0.020))

    assert prometheus.queries == ["gateway[5000ms]"]
    assert found.latency_p99 == 0.030
    assert math.isnan(found.latency_p95)
    assert found.quantiles_from == "indicator"
    assert found.disturbed == ()


def test_all_quantiles(prometheus: Prometheus) -> None:
    """One query for each."""
    indicator = PrometheusIndicator(url=f"{prometheus.url}/", query="histogram_quantile({quantile}, x)")

    found = indicator.applied(measurement())

    assert [query.split(",")[0][-4:].lstrip("(e") for query in prometheus.queries] == ["0.5", "0.95", "0.99"]
    assert found.latency_p50 == found.latency_p95 == found.latency_p99 == 0.030


@pytest.mark.parametrize("series", [[], [["NaN"]], [["+Inf"]], [["-1"]]])
def test_no_value_disturbs(prometheus: Prometheus, series: list[list[str]]) -> None:
    """The server's own view does not stand in for it: the window is not used."""
    prometheus.series = series
    indicator = PrometheusIndicator(url=prometheus.url, query="x")

    found = indicator.applied(measurement(p95=0.020, disturbed=("another reason",)))

    assert math.isnan(found.latency_p95)
    assert found.disturbed == ("another reason", module.NO_VALUE)


def test_a_window_without_answers_has_one_reason(prometheus: Prometheus) -> None:
    """There is no latency because there is no request: the loop judges a change by that reason alone."""
    prometheus.series = [["NaN"]]

    found = PrometheusIndicator(url=prometheus.url, query="x").applied(measurement(disturbed=(UNANSWERED,)))

    assert found.disturbed == (UNANSWERED,)


def test_a_scalar(prometheus: Prometheus) -> None:
    """Its answer has another form."""
    prometheus.body = b'{"data": {"resultType": "scalar", "result": [1.0, "0.5"]}}'

    assert PrometheusIndicator(url=prometheus.url, query="0.5").read(1.0) == {"p95": 0.5}


def test_several_series(prometheus: Prometheus) -> None:
    """One number is wanted."""
    prometheus.series = [["0.1"], ["0.2"]]

    with pytest.raises(InvalidInput, match=r"--sli-query: gives 2 series.*sum by"):
        PrometheusIndicator(url=prometheus.url, query="x").check(1.0)


def test_a_refused_query(prometheus: Prometheus) -> None:
    """In Prometheus' own words."""
    prometheus.refuse = "1:3: parse error: unexpected end of input"

    with pytest.raises(InvalidInput, match=r"--sli-query: .*unexpected end of input"):
        PrometheusIndicator(url=prometheus.url, query="x(").check(1.0)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"data": {"resultType": "vector", "result": [1]}}'])
def test_something_else_answers(prometheus: Prometheus, body: bytes) -> None:
    """Not every web server is a Prometheus."""
    prometheus.body = body

    with pytest.raises(InvalidInput, match="not a Prometheus"):
        PrometheusIndicator(url=prometheus.url, query="x").check(1.0)


def test_nobody_answers(prometheus: Prometheus) -> None:
    """The address is named."""
    prometheus.server.server_close()

    with pytest.raises(Unreachable, match=prometheus.url):
        PrometheusIndicator(url=prometheus.url, query="x").check(1.0)


def test_an_outage_costs_windows_only(prometheus: Prometheus) -> None:
    """While it does not answer, windows are not used; the run goes on."""
    prometheus.server.server_close()

    found = PrometheusIndicator(url=prometheus.url, query="x").applied(measurement())

    assert "indicator is not known" in found.disturbed[0]
    assert math.isnan(found.latency_p95)


@pytest.mark.parametrize("status", [302, 401, 404, 429, 500, 502, 503])
def test_a_server_in_trouble_costs_windows_only(prometheus: Prometheus, status: int) -> None:
    """Such as one that restarts behind a gateway; the query and the address are no mistakes."""
    prometheus.status, prometheus.body = status, b"<html>"

    found = PrometheusIndicator(url=prometheus.url, query="x").applied(measurement())

    assert "indicator is not known" in found.disturbed[0]
    assert f"{prometheus.url} says: {status}" in found.disturbed[0]
    assert math.isnan(found.latency_p95)


def test_a_page_in_its_place_costs_windows_only(prometheus: Prometheus) -> None:
    """The address was right when the run began."""
    prometheus.body = b"<html>"

    found = PrometheusIndicator(url=prometheus.url, query="x").applied(measurement())

    assert "what answers there is not a Prometheus server" in found.disturbed[0]
    assert math.isnan(found.latency_p95)


def test_a_slow_answer(prometheus: Prometheus) -> None:
    """Waiting ends."""
    prometheus.delay = 1.0

    with pytest.raises(TimedOut, match=r"within 0\.1 s"):
        PrometheusIndicator(url=prometheus.url, query="x", timeout=0.1).check(1.0)


def test_a_token_is_sent_and_never_shown(prometheus: Prometheus) -> None:
    """As a bearer token."""
    indicator = PrometheusIndicator(url=prometheus.url, query="x", token=held("secret"))
    indicator.check(1.0)

    assert prometheus.tokens == ["Bearer secret"]
    assert "secret" not in repr(indicator)


def test_a_renewed_token_is_sent(prometheus: Prometheus, tmp_path: Path) -> None:
    """Once its file has rested; where the file is gone, the last token stays."""
    file = tmp_path / "token"
    file.write_text("old")
    file.chmod(0o600)
    indicator = make_indicator(Sli(prometheus=prometheus.url, query="x", token_file=file), "p95")
    assert indicator is not None
    indicator.check(1.0)

    file.write_text("renewed")
    indicator.check(1.0)
    indicator.check(1.0)
    file.unlink()
    indicator.check(1.0)
    indicator.check(1.0)

    assert prometheus.tokens == ["Bearer old", "Bearer old", *["Bearer renewed"] * 3]


@pytest.mark.parametrize(
    ("url", "query", "words"),
    [
        ("prometheus:9090", "x", "not a web address"),
        ("ftp://prometheus", "x", "not a web address"),
        ("http://me:secret@prometheus", "x", "--sli-token-file"),
        ("http://prometheus", " ", "--sli-query: is empty"),
    ],
)
def test_what_cannot_be(url: str, query: str, words: str) -> None:
    """Told before anything is asked, without the password."""
    with pytest.raises(InvalidInput, match=words) as error:
        PrometheusIndicator(url=url, query=query)

    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"data": {"resultType": "scalar", "result": [1.0, 1' + b"0" * 400 + b"]}}",
        b'{"data": {"resultType": "scalar", "result": ' + b"[" * 100_000,
        b'{"data": {"resultType": "vector", "result": {"a": 1}}}',
        b'{"data": {"resultType": "scalar", "result": [1, ' + b"9" * 5000 + b"]}}",
        b'{"data": {"resultType": "scalar", "result": [1, true]}}',
        b'{"data": []}',
    ],
)
def test_numbers_and_lists_without_end(prometheus: Prometheus, answer: bytes) -> None:
    """They are no answer of a Prometheus server."""
    prometheus.body = answer

    with pytest.raises(InvalidInput, match="not a Prometheus"):
        PrometheusIndicator(url=prometheus.url, query="x").check(1.0)


def test_one_deadline_for_all_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked with what the ones before have left of the time."""
    now, left = 100.0, list[float]()

    def get(*_: object, deadline: float, **__: object) -> WebAnswer:
        nonlocal now
        left.append(deadline - now)
        now += 0.5
        return WebAnswer(200, "OK", b'{"data": {"resultType": "scalar", "result": [1, "0.03"]}}')

    monkeypatch.setattr(module, "get", get)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    PrometheusIndicator(url="http://127.0.0.1:9", query="{quantile}", timeout=2.0).check(1.0)

    assert left == [2.0, 1.5, 1.0]


def test_a_token_goes_to_no_proxy(prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would see it: to a Prometheus of this machine it is sent without TLS."""
    heard: list[bytes] = []
    with hostile(lambda: [b"HTTP/1.1 502 Bad Gateway\r\n\r\n"], heard) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy}")
        monkeypatch.delenv("no_proxy", raising=False)

        PrometheusIndicator(url=prometheus.url, query="x", token=held("secret")).check(1.0)

    assert prometheus.tokens == ["Bearer secret"]
    assert heard == []


def test_a_refusal_in_many_words(prometheus: Prometheus) -> None:
    """Some of them, on one line."""
    prometheus.refuse = "no\nsuch " + "x" * 10_000

    with pytest.raises(InvalidInput, match="no such xxx") as caught:
        PrometheusIndicator(url=prometheus.url, query="x").check(1.0)

    assert len(str(caught.value)) < 500
