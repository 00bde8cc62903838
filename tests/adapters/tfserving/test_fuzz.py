"""Whatever a server's metrics page says: an error of ours at most, and totals that never fall."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adapters.tfserving.test_metrics import PAGE
from tuner.adapters.tfserving.metrics import parse_metrics
from tuner.adapters.tfserving.statistics import Statistics, largest_request
from tuner.errors import AdapterError
from tuner.profile import fit_profile

NUMBERS = st.one_of(
    st.integers(-3, 2**70).map(str),
    st.floats().map(str),
    st.sampled_from(["+Inf", "NaN", "1e308", "", "x", "5 9"]),
)


@st.composite
def pages(draw: Callable[..., Any]) -> str:
    """The page of a server with some of its numbers replaced, lines left out, doubled and cut."""
    lines = []
    for line in PAGE.splitlines():
        name = line.rpartition(" ")[0]
        changed = line
        choice = draw(st.integers(0, 9))
        if choice == 0:
            continue
        if choice <= 3 and not line.startswith("#"):
            changed = f"{name} {draw(NUMBERS)}"
        if choice == 4:
            changed = line[: draw(st.integers(0, len(line)))]
        lines += [changed] * (2 if choice == 5 else 1)
    return "\n".join([*lines, draw(st.text(max_size=20))])


@given(st.lists(pages(), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_any_page(texts: list[str]) -> None:
    """Parsed and added up, or refused; nothing falls, nothing is infinite."""
    statistics, last = None, None
    for text in texts:
        try:
            reading = parse_metrics(text, "mlp")
        except AdapterError:
            continue
        assert largest_request(reading.rows) >= 1
        if statistics is None:
            statistics = Statistics(reading, 64)
        statistics.add(reading)
        now = statistics.counters(0.0)
        for name in ("requests", "failures", "latency", "queue", "compute", "inferences"):
            value = getattr(now, name)
            assert np.isfinite(value)
            assert value >= (getattr(last, name) if last is not None else 0), name
        assert (now.batch_counts >= 0).all()
        assert np.isfinite(now.batch_seconds).all()
        now.latencies.quantile(0.95)
        fit_profile(now.batch_counts, now.batch_seconds)
        last = now


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_text(text: str) -> None:
    """Something else than metrics is no metrics."""
    try:
        parse_metrics(text, "mlp")
    except AdapterError:
        return
