"""Whatever Triton's metrics page says: it is read, or refused; no number gets through that cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.adapters.triton.metrics import parse_metrics
from tuner.errors import AdapterError

NUMBERS = st.one_of(st.floats().map(str), st.integers().map(str), st.text(max_size=6))
NAMES = (
    "nv_inference_request_failure",
    "nv_inference_pending_request_count",
    "nv_inference_request_summary_us",
)


@st.composite
def lines(draw: Callable[..., Any]) -> str:
    labels = f'model="mlp",version="{draw(st.text("0123456789x", max_size=3))}"'
    if draw(st.booleans()):
        labels += f',quantile="{draw(st.sampled_from(["0.5", "0.95", "1e9", "x", ""]))}"'
    line = f"{draw(st.sampled_from(NAMES))}{{{labels}}} {draw(NUMBERS)}"
    return line[: draw(st.integers(0, len(line)))] if draw(st.integers(0, 4)) == 0 else line


@given(st.lists(lines(), max_size=8).map("\n".join) | st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_page(text: str) -> None:
    """Every number is finite and not negative."""
    try:
        reading = parse_metrics(text, "mlp")
    except AdapterError:
        return
    for value in (*reading.failures.values(), reading.pending, *reading.quantiles.values()):
        assert value is None or (math.isfinite(value) and value >= 0)
