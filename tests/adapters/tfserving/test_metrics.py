"""Reading TensorFlow Serving's metrics page."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.adapters.tfserving.metrics import metrics_page, parse_metrics
from tuner.adapters.tfserving.target import parse_target
from tuner.errors import AdapterError

PAGE = """\
# TYPE :tensorflow:serving:request_count counter
:tensorflow:serving:request_count{model_name="mlp",status="OK"} 12
:tensorflow:serving:request_count{model_name="mlp",status="INVALID_ARGUMENT"} 2
:tensorflow:serving:request_count{model_name="mlp",status="UNAVAILABLE"} 1
:tensorflow:serving:request_count{model_name="cnn",status="OK"} 40
# TYPE :tensorflow:serving:request_latency histogram
:tensorflow:serving:request_latency_bucket{model_name="mlp",API="Predict",entrypoint="GRPC",le="10"} 0
:tensorflow:serving:request_latency_bucket{model_name="mlp",API="Predict",entrypoint="GRPC",le="18"} 4
:tensorflow:serving:request_latency_bucket{model_name="mlp",API="Predict",entrypoint="GRPC",le="+Inf"} 9
:tensorflow:serving:request_latency_sum{model_name="mlp",API="Predict",entrypoint="GRPC"} 300
:tensorflow:serving:request_latency_count{model_name="mlp",API="Predict",entrypoint="GRPC"} 9
:tensorflow:serving:request_latency_bucket{model_name="mlp",API="Predict",entrypoint="REST",le="10"} 0
:tensorflow:serving:request_latency_bucket{model_name="mlp",API="Predict",entrypoint="REST",le="18"} 1
:tensorflow:serving:request_latency_bucket{model_name="mlp",API="Predict",entrypoint="REST",le="+Inf"} 3
:tensorflow:serving:request_latency_sum{model_name="mlp",API="Predict",entrypoint="REST"} 1.5e+06
:tensorflow:serving:request_latency_count{model_name="mlp",API="Predict",entrypoint="REST"} 3
# TYPE :tensorflow:serving:batching_session:wrapped_run_count counter
:tensorflow:serving:batching_session:wrapped_run_count{} 7
# TYPE :tensorflow:serving:batching_session:processed_batch_size histogram
:tensorflow:serving:batching_session:processed_batch_size_bucket{le="1"} 0
:tensorflow:serving:batching_session:processed_batch_size_bucket{le="2"} 5
:tensorflow:serving:batching_session:processed_batch_size_bucket{le="+Inf"} 7
:tensorflow:serving:batching_session:processed_batch_size_sum{} 11
:tensorflow:serving:batching_session:processed_batch_size_count{} 7
"""


def test_what_to_do_without_metrics_is_said_with_the_ports_of_the_target() -> None:
    """Whoever has another path or port would start the server with those of an example."""
    fix = metrics_page(parse_target("tfserving://host/m?rest=9001&metrics=/m")).fix

    assert "--rest_api_port=9001" in fix
    assert 'prometheus_config { enable: true path: "/m" }, or correct rest= or metrics=' in fix


def test_one_model_of_several() -> None:
    """Entry points are added, failures are those of all kinds, and batches are everybody's."""
    reading = parse_metrics(PAGE, "mlp")

    assert (reading.requests, reading.failures, reading.others) == (12, 3, 40)
    np.testing.assert_array_equal(reading.latency.bounds, [10, 18, np.inf])
    np.testing.assert_array_equal(reading.latency.counts, [0, 5, 7])
    assert reading.latency.sum == 1_500_300
    np.testing.assert_array_equal(reading.batch.counts, [0, 5, 2])
    assert reading.batch.sum == 11
    assert reading.queue is None


def test_failures_that_any_number_of_servers_would_have() -> None:
    """A client's mistake is one, and an error in the model; a full queue is not, nor what nobody knows."""
    more = "".join(
        f':tensorflow:serving:request_count{{model_name="mlp",status="{status}"}} {count}\n'
        for status, count in {"INTERNAL": 3, "DEADLINE_EXCEEDED": 5, "UNKNOWN": 7}.items()
    )
    reading = parse_metrics(PAGE + more, "mlp")

    assert (reading.failures, reading.beyond_servers) == (18, 5)


PROBES = """\
:tensorflow:serving:request_latency_bucket{model_name="mlp",API="",entrypoint="REST",le="10"} 500
:tensorflow:serving:request_latency_bucket{model_name="mlp",API="",entrypoint="REST",le="+Inf"} 500
:tensorflow:serving:request_latency_sum{model_name="mlp",API="",entrypoint="REST"} 2000
"""


def test_health_probes_are_no_requests() -> None:
    """They are answered far faster than the model; the page times them as of no API, and counts them."""
    reading = parse_metrics(PAGE.replace('"OK"} 12', '"OK"} 512') + PROBES, "mlp")

    assert (reading.requests, reading.latency.counts.sum(), reading.latency.sum) == (12, 12, 1_500_300)


def test_a_server_that_has_only_been_probed() -> None:
    """Nothing was requested of it; else its count would fall at the first request, as by a restart."""
    page = f':tensorflow:serving:request_count{{model_name="mlp",status="OK"}} 500\n{PROBES}'

    reading = parse_metrics(page, "mlp")

    assert (reading.requests, reading.latency) == (0, None)


def without_times(page: str) -> str:
    """A page of a server that does not time requests."""
    return "\n".join(line for line in page.splitlines() if "request_latency" not in line) + "\n"


def test_names_with_total() -> None:
    """Counters renamed to ``_total`` on the way are accepted."""
    page = PAGE.replace("request_count{", "request_count_total{")

    assert parse_metrics(without_times(page), "mlp").requests == 12
    assert parse_metrics(page, "mlp").failures == 3


def test_latencies_of_failed_requests_are_left_out() -> None:
    """Newer servers time them, too, with their status."""
    page = PAGE.replace('entrypoint="REST"', 'entrypoint="GRPC",status="INTERNAL"')

    assert parse_metrics(page, "mlp").latency.counts.sum() == 9


def test_a_server_without_traffic() -> None:
    """Nothing is counted yet."""
    reading = parse_metrics("# TYPE :tensorflow:serving:request_count counter\n", "mlp")

    assert (reading.requests, reading.failures, reading.latency) == (0, 0, None)


@pytest.mark.parametrize("value", ["-5", "NaN", "+Inf"])
def test_senseless_numbers_are_left_out(value: str) -> None:
    """What cannot be a count is not taken for one."""
    page = PAGE.replace('"OK"} 12', f'"OK"}} {value}').replace('le="18"} 4', f'le="18"}} {value}')

    reading = parse_metrics(page, "mlp")

    assert parse_metrics(without_times(page), "mlp").requests == 0
    assert (reading.latency.counts >= 0).all()


def test_malformed_page() -> None:
    """A broken line of ours is an error of the server."""
    with pytest.raises(AdapterError, match="TensorFlow Serving's metrics cannot be read"):
        parse_metrics(PAGE.replace('"OK"} 12', '"OK"} many'), "mlp")
