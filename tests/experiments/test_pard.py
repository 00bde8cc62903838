"""Proactive dropping: the queries of the experiment."""

from __future__ import annotations

import pytest

from tuner.experiments.pard.drop import QUERIES, query_of


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_planned_for_the_accelerators(name: str) -> None:
    """Its stages are those declared, within the SLO, at a rate that the accelerators can serve."""
    query = query_of(name)

    assert set(query.order) == set(QUERIES[name][1])
    assert query.slo_ms == QUERIES[name][0]
    assert query.rate > 100
