"""Proactive dropping: the queries of the experiment."""

from __future__ import annotations

import pytest

from tuner.experiments.pard.drop import QUERIES, Dropped, DropTask, chosen_quantiles, query_of


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_planned_for_the_accelerators(name: str) -> None:
    """Its stages are those declared, within the SLO, at a rate that the accelerators can serve."""
    query = query_of(name)

    assert set(query.order) == set(QUERIES[name][1])
    assert query.slo_ms == QUERIES[name][0]
    assert query.rate > 100


def test_a_quantile_is_chosen_where_nothing_is_reported() -> None:
    """Over all queries and loads that are not reported; what is reported does not matter."""
    rule = "early drop, proactive"
    found = {
        DropTask(query, rule, load, quantile, load == 1.5): [Dropped(good, 0.0)] * 2
        for query in QUERIES
        for load, quantile, good in ((1.5, 0.1, 99.0), (1.4, 0.1, 50.0), (1.4, 0.9, 60.0), (1.5, 0.9, 1.0))
    }

    assert chosen_quantiles(found) == {rule: 0.9}
