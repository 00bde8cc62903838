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


def test_a_quantile_is_chosen_by_all_that_was_tried() -> None:
    """Over queries and loads, for each rule."""
    rule = "early drop, proactive"
    good = {(1.1, 0.1): 99.0, (1.1, 0.9): 90.0, (1.4, 0.1): 50.0, (1.4, 0.9): 60.0}
    tried = {
        DropTask(query, rule, load, quantile): Dropped(share, 0.0)
        for query in QUERIES
        for (load, quantile), share in good.items()
    }

    assert chosen_quantiles(tried) == {rule: 0.9}
