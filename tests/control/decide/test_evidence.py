"""How surely a window kept or broke the SLO, by the requests in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import OBJECTIVE, measurement
from tuner.control.decide.evidence import margin


def test_requests_of_several_rows_do_not_make_each_other_wait() -> None:
    """A hundred that were executed one by one are as sure as a hundred of one row, and no less in batches."""
    slow = measurement(0.036, rate=20.0)
    one = margin(replace(slow, batch_mean=1.0, request_rows=1.0), OBJECTIVE.slo)
    several = margin(replace(slow, batch_mean=16.0, request_rows=16.0), OBJECTIVE.slo)
    split = margin(replace(slow, batch_mean=8.0, request_rows=16.0), OBJECTIVE.slo)
    uncounted = margin(replace(slow, batch_mean=4.0), OBJECTIVE.slo)
    by_four = margin(replace(slow, batch_mean=64.0, request_rows=16.0), OBJECTIVE.slo)

    assert several == split == one
    assert by_four.error == pytest.approx(uncounted.error)
    assert by_four.error > one.error
