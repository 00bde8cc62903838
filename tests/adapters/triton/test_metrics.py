"""Reading Triton's metrics page."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from tuner.adapters.triton import metrics
from tuner.adapters.triton.metrics import MetricsReading, fetch_metrics, parse_metrics
from tuner.errors import AdapterError, InvalidInput, TimedOut, Unreachable

PAGE = """\
# HELP nv_inference_request_failure Number of failed inference requests, all batch sizes
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="mlp",reason="OTHER",version="1"} 1
nv_inference_request_failure{model="mlp",reason="REJECTED",version="1"} 2
nv_inference_request_failure{model="cnn",reason="REJECTED",version="1"} 50
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="mlp",version="1"} 7
# TYPE nv_inference_request_summary_us summary
nv_inference_request_summary_us_count{model="mlp",version="1"} 30
nv_inference_request_summary_us_sum{model="mlp",version="1"} 243266
nv_inference_request_summary_us{model="mlp",version="1",quantile="0.5"} 5719
nv_inference_request_summary_us{model="mlp",version="1",quantile="0.95"} 9116
nv_inference_request_summary_us{model="cnn",version="1",quantile="0.5"} 1
"""


def test_one_model_of_several():
    """Failures of all reasons are added; durations become seconds; other models are left out."""
    assert parse_metrics(PAGE, "mlp") == MetricsReading(
        failures=3, pending=7.0, summaries=True, quantiles={0.5: 0.005719, 0.95: 0.009116}
    )


def test_names_with_total():
    """Counters renamed to ``_total`` on the way are accepted."""
    page = 'nv_inference_request_failure_total{model="m",version="1"} 4\n'

    assert parse_metrics(page, "m").failures == 4


def test_quantiles_before_the_first_request():
    """They are exported, but have no values yet."""
    page = 'nv_inference_request_summary_us{model="m",version="1",quantile="0.5"} Nan\n'

    reading = parse_metrics(page, "m")

    assert reading.summaries
    assert reading.quantiles == {}


def test_versions():
    """Counts of all versions are added; quantiles are those of the newest version with traffic."""
    medians = {2: 2, 9: 9, 10: "Nan"}
    page = "".join(
        f'nv_inference_request_failure{{model="m",version="{version}"}} {version}\n'
        f'nv_inference_request_summary_us{{model="m",version="{version}",quantile="0.5"}} {median}\n'
        for version, median in medians.items()
    )

    assert parse_metrics(page, "m").failures == 21
    assert parse_metrics(page, "m").quantiles == {0.5: 9e-6}
    assert parse_metrics(page, "m", "2") == MetricsReading(failures=2, summaries=True, quantiles={0.5: 2e-6})


@pytest.mark.parametrize("value", ["-1", "+Inf", "NaN"])
def test_senseless_numbers_are_left_out(value):
    """What cannot be a count or a duration is not taken for one."""
    page = (
        f'nv_inference_request_failure{{model="m",version="1"}} {value}\n'
        f'nv_inference_pending_request_count{{model="m",version="1"}} {value}\n'
        f'nv_inference_request_summary_us{{model="m",version="1",quantile="0.5"}} {value}\n'
    )

    assert parse_metrics(page, "m") == MetricsReading(summaries=True)


def test_a_model_that_is_absent():
    """Nothing is known of it."""
    assert parse_metrics(PAGE, "ml") == MetricsReading()


def test_a_name_with_quotes():
    """Names are escaped as the format asks."""
    page = 'nv_inference_pending_request_count{model="a\\"b\\\\c",version="1"} 2\n'

    assert parse_metrics(page, 'a"b\\c').pending == 2


def test_malformed_page():
    """A broken line of ours is an error of the server."""
    with pytest.raises(AdapterError, match="cannot be read"):
        parse_metrics('nv_inference_pending_request_count{model="m",version="1"} many\n', "m")


@contextlib.contextmanager
def answering(answer: bytes):
    """A server that gives every caller the same answer; None keeps them waiting."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    if answer:
                        connection.sendall(answer)
                    else:
                        connection.recv(65536)  # until the caller gives up

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_fetch():
    """The page comes as text."""
    with answering(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + PAGE.encode()) as port:
        assert fetch_metrics("127.0.0.1", port, 5.0) == PAGE


def test_fetch_from_a_closed_port():
    """The message names the port, the option and Triton's flag."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(Unreachable, match=rf"metrics port {port}.*--allow-metrics=true.*metrics="):
        fetch_metrics("127.0.0.1", port, 5.0)


def test_fetch_from_a_silent_server():
    """Waiting ends."""
    with answering(b"") as port, pytest.raises(TimedOut, match=f"metrics port {port}"):
        fetch_metrics("127.0.0.1", port, 0.05)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>hello</html>",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
    ],
)
def test_fetch_from_something_else(answer):
    """A port that is not Triton's metrics is the caller's mistake."""
    with answering(answer) as port, pytest.raises(InvalidInput, match="metrics"):
        fetch_metrics("127.0.0.1", port, 5.0)


def test_fetch_is_bounded(monkeypatch):
    """A page without end is not read to memory."""
    monkeypatch.setattr(metrics, "LARGEST_PAGE", 100)
    body = b"#" * 5000

    with (
        answering(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body) as port,
        pytest.raises(InvalidInput),
    ):
        fetch_metrics("127.0.0.1", port, 5.0)
