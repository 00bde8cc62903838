"""Reading Triton's metrics page."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.adapters.triton.test_limits import TARGET, serving
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.metrics import TritonMetrics, parse_metrics
from tuner.errors import AdapterError

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


def test_one_model_of_several() -> None:
    """Failures have their reasons; durations become seconds; other models are left out."""
    assert parse_metrics(PAGE, "mlp") == TritonMetrics(
        failures={"1 OTHER": 1, "1 REJECTED": 2},
        pending=7.0,
        exported=frozenset({0.5, 0.95}),
        quantiles={0.5: 0.005719, 0.95: 0.009116},
    )


def test_names_with_total() -> None:
    """Counters renamed to ``_total`` on the way are accepted."""
    page = 'nv_inference_request_failure_total{model="m",version="1"} 4\n'

    assert parse_metrics(page, "m").failures == {"1 ": 4}


def test_quantiles_before_the_first_request() -> None:
    """They are exported, but have no values yet."""
    page = 'nv_inference_request_summary_us{model="m",version="1",quantile="0.5"} Nan\n'

    reading = parse_metrics(page, "m")

    assert reading.exported == {0.5}
    assert reading.quantiles == {}


def test_versions() -> None:
    """Failures are counted apart; quantiles are those of the newest version with traffic."""
    medians = {2: 2, 9: 9, 10: "Nan"}
    page = "".join(
        f'nv_inference_request_failure{{model="m",version="{version}"}} {version}\n'
        f'nv_inference_request_summary_us{{model="m",version="{version}",quantile="0.5"}} {median}\n'
        for version, median in medians.items()
    )

    assert parse_metrics(page, "m").failures == {"2 ": 2, "9 ": 9, "10 ": 10}
    assert parse_metrics(page, "m").quantiles == {0.5: 9e-6}
    assert parse_metrics(page, "m", "2") == TritonMetrics(
        failures={"2 ": 2}, exported=frozenset({0.5}), quantiles={0.5: 2e-6}
    )


def summary(gpu: str, answered: int, *latencies: int | str) -> str:
    """What a page has of the requests that one GPU answered; of the instances on none without a name."""
    labels = (f'gpu_uuid="{gpu}",' if gpu else "") + 'model="m",version="1"'
    quantiles = "".join(
        f'nv_inference_request_summary_us{{{labels},quantile="{share}"}} {latency}\n'
        for share, latency in zip(("0.5", "0.95", "0.99"), latencies, strict=True)
    )
    return f"nv_inference_request_summary_us_count{{{labels}}} {answered}\n{quantiles}"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("GPU-1", 500, 10, 30, 40), ("GPU-2", 500, 12, 20, 90)], (12, 30, 90)),
        ([("GPU-1", 500, 10, 30, 40), ("GPU-2", 0, "Nan", "Nan", "Nan")], (10, 30, 40)),
        ([("GPU-1", 900, 10, 20, 25), ("", 100, 300, 400, 500)], (20, 400, 500)),
    ],
)
def test_quantiles_of_several_gpus(parts: list[Any], expected: tuple[int, ...]) -> None:
    """Triton has some for each GPU and for the instances on none; of those that are alike the worst counts.

    A few requests to a slow part move the quantiles that they can move, and not the median.
    """
    wanted = {share: latency / 1e6 for share, latency in zip((0.5, 0.95, 0.99), expected, strict=True)}
    for order in (parts, parts[::-1]):
        assert parse_metrics("".join(summary(*part) for part in order), "m").quantiles == wanted


def test_failures_in_the_model_would_be_no_fewer_with_more_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other reasons might; where the page has none, nobody knows."""
    counts = {"BACKEND": 0, "REJECTED": 0, "OTHER": 0, "": 0}

    def metrics(_: TritonBackend) -> TritonMetrics:
        return TritonMetrics(failures={f"1 {reason}": count for reason, count in counts.items()})

    serving(monkeypatch, mlp='name: "mlp" max_batch_size: 8')
    monkeypatch.setattr(TritonBackend, "_metrics", metrics)
    backend = TritonBackend(TARGET)
    counts |= {"BACKEND": 7, "REJECTED": 5, "OTHER": 3, "": 1}
    counters = backend.counters()

    assert (counters.failures, counters.beyond_servers) == (16, 7)


@pytest.mark.parametrize(
    ("exported", "lacks", "words"),
    [
        ("0.5 0.9 0.95 0.99 0.999", (), None),
        (
            "0.5 0.90",
            ("p95", "p99"),
            "summary_quantiles lack p95 and p99: .*0.95:0.001.* unless .* decoupled",
        ),
        ("", (), "only mean latencies"),
    ],
)
def test_quantiles_that_somebody_has_chosen(
    monkeypatch: pytest.MonkeyPatch, exported: str, lacks: tuple[str, ...], words: str | None
) -> None:
    """What they lack for an SLO is known before the first request, and how to add it."""
    page = "".join(
        f'nv_inference_request_summary_us{{model="mlp",version="1",quantile="{share}"}} Nan\n'
        for share in exported.split()
    )
    serving(monkeypatch, mlp='name: "mlp" max_batch_size: 8')
    monkeypatch.setattr(TritonBackend, "_metrics", lambda _: parse_metrics(page, "mlp"))

    described = TritonBackend("triton://127.0.0.1:1/mlp").describe()

    assert described.quantiles == bool(exported)
    assert described.lacks == lacks
    noted = [note for note in described.notes if "latencies" in note or "summary_quantiles" in note]
    assert len(noted) == (words is not None)
    assert words is None or re.search(words, noted[0])


def test_a_version_that_is_unloaded_counts_no_failure_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that is loaded again and begins at 0; what each counts from then on is added."""
    counts = {"1": 100, "2": 5000}

    def metrics(_: TritonBackend) -> TritonMetrics:
        return parse_metrics(
            "".join(
                f'nv_inference_request_failure{{model="mlp",reason="OTHER",version="{version}"}} {count}\n'
                for version, count in counts.items()
            ),
            "mlp",
        )

    serving(monkeypatch, mlp='name: "mlp" max_batch_size: 8')
    monkeypatch.setattr(TritonBackend, "_metrics", metrics)
    backend = TritonBackend(TARGET)
    failures = []
    for change in ({}, {"1": None}, {"2": 5003}, {"1": 2}, {"1": None, "2": None}, {"2": 1}):
        counts |= {version: count for version, count in change.items() if count is not None}
        for version in [version for version, count in change.items() if count is None]:
            del counts[version]
        failures.append(backend.counters().failures)

    assert failures == [0, 0, 3, 5, 5, 6]


@pytest.mark.parametrize("value", ["-1", "+Inf", "NaN"])
def test_senseless_numbers_are_left_out(value: str) -> None:
    """What cannot be a count or a duration is not taken for one."""
    page = (
        f'nv_inference_request_failure{{model="m",version="1"}} {value}\n'
        f'nv_inference_pending_request_count{{model="m",version="1"}} {value}\n'
        f'nv_inference_request_summary_us{{model="m",version="1",quantile="0.5"}} {value}\n'
    )

    assert parse_metrics(page, "m") == TritonMetrics(exported=frozenset({0.5}))


def test_a_model_that_is_absent() -> None:
    """Nothing is known of it."""
    assert parse_metrics(PAGE, "ml") == TritonMetrics()


def test_a_name_with_quotes() -> None:
    """Names are escaped as the format asks."""
    page = 'nv_inference_pending_request_count{model="a\\"b\\\\c",version="1"} 2\n'

    assert parse_metrics(page, 'a"b\\c').pending == 2


def test_malformed_page() -> None:
    """A broken line of ours is an error of the server."""
    with pytest.raises(AdapterError, match="cannot be read"):
        parse_metrics('nv_inference_pending_request_count{model="m",version="1"} many\n', "m")
