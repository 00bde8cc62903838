"""Ten thousand damaged metrics pages of each server, and answers that are hardly HTTP."""

from __future__ import annotations

import contextlib
import http.client
import math
import socket
import time
from random import Random

import numpy as np
import pytest

from tests.fuzz.mutation import damaged_bytes, damaged_text, rounds
from tuner.adapters.connection import web
from tuner.adapters.tfserving.metrics import parse_metrics as parse_tfserving
from tuner.adapters.tfserving.statistics import Statistics, largest_request
from tuner.adapters.triton.metrics import parse_metrics as parse_triton
from tuner.errors import AdapterError
from tuner.profile import fit_profile

TRITON = """\
# HELP nv_inference_request_failure Number of failed inference requests
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="mlp",version="1",reason="REJECTED"} 3
nv_inference_request_failure{model="mlp",version="2",reason="OTHER"} 4
nv_inference_pending_request_count{model="mlp",version="2"} 5
nv_inference_request_summary_us{model="mlp",version="1",quantile="0.5"} 200
nv_inference_request_summary_us{model="mlp",version="2",quantile="0.95"} 1200
nv_inference_request_summary_us_count{model="mlp",version="2"} 99
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
"""


def tfserving(factor: int) -> str:
    """A page with all that is read of one, after a time or after several times as long."""
    lines = [
        f':tensorflow:serving:request_count{{model_name="mlp",status="OK"}} {12 * factor}',
        f':tensorflow:serving:request_count{{model_name="mlp",status="INTERNAL"}} {factor}',
        f':tensorflow:serving:request_count{{model_name="cnn",status="OK"}} {7 * factor}',
    ]
    for name, mean in HISTOGRAMS.items():
        labels = 'model_name="mlp",' if "batching" not in name else ""
        for bound, below in (("2", 1), ("8", 4), ("+Inf", 12)):
            lines.append(f':tensorflow:serving:{name}_bucket{{{labels}le="{bound}"}} {below * factor}')
        lines.append(f":tensorflow:serving:{name}_sum{{{labels.rstrip(',')}}} {12 * mean * factor}")
    return "\n".join(lines) + "\n"


HISTOGRAMS = {
    "request_latency": 900,
    "runtime_latency": 700,
    "batching_session:queuing_latency": 200,
    "batching_session:processed_batch_size": 6,
    "batching_session:input_batch_size": 3,
}
PAGES = [tfserving(factor) for factor in (1, 3)]
SOUND = [parse_tfserving(page, "mlp") for page in PAGES]


@rounds
def test_triton(random: Random) -> bool:
    """Every number is finite and not negative, or the page is refused."""
    with contextlib.suppress(AdapterError):
        reading = parse_triton(damaged_text(random, TRITON), "mlp", random.choice(["", "2"]))
        for value in (*reading.failures.values(), reading.pending, *reading.quantiles.values()):
            assert value is None or (math.isfinite(value) and value >= 0)
        return True
    return False


@rounds
def test_tfserving(random: Random) -> bool:
    """Totals over two pages never fall and are finite, or a page is refused."""
    with contextlib.suppress(AdapterError):
        first, second = (
            parse_tfserving(damaged_text(random, page), "mlp") if random.random() < 0.6 else sound
            for page, sound in zip(PAGES, SOUND, strict=True)
        )
        assert largest_request(first.rows) >= 1
        statistics = Statistics(first, 64)
        statistics.add(second)
        now = statistics.counters(0.0)
        for name in ("requests", "failures", "latency", "queue", "compute", "inferences"):
            assert np.isfinite(getattr(now, name)), name
            assert getattr(now, name) >= 0, name
        assert (now.batch_counts >= 0).all()
        assert np.isfinite(now.batch_seconds).all()
        assert not now.latencies.quantile(0.95) < 0
        fit_profile(now.batch_counts, now.batch_seconds)
        return True
    return False


ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n2;a=b\r\n!!\r\n0\r\nA: b\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 Not Found\r\n\r\nno",
]


@rounds
def test_http(random: Random) -> bool:
    """It is an answer, or one of the errors that the callers of `get` expect."""
    ours, theirs = socket.socketpair()
    answer = damaged_bytes(random, random.choice(ANSWERS))
    with theirs, pytest.MonkeyPatch.context() as patch:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        patch.setattr(web, "_connected", lambda *_: ours)
        with contextlib.suppress(OSError, http.client.HTTPException):
            found = web.get("far", 80, "/", deadline=time.monotonic() + 60, largest=100)
            assert len(found.body) <= len(answer)
            return True
    return False
