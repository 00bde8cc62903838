"""A query is split again when its gammas drift, and only when that saves accelerators."""

from __future__ import annotations

from tuner.planning.queries import Query, QueryWatch, plan_query

X = {"name": "x", "profile_ms": {16: 80, 25: 100, 36: 120}, "next": [{"stage": "y", "gamma": 0.1}]}
Y = {"name": "y", "profile_ms": {24: 80, 40: 100, 60: 120}}
QUERY = Query.model_validate({"slo_ms": 200, "rate": 1000, "stages": [X, Y]})


def observe(watch: QueryWatch, gamma: float, rate: int) -> None:
    """Let an epoch of 10 s pass."""
    requests = 10 * rate
    watch.observe(10.0, {"x": requests, "y": int(gamma * requests)}, {("x", "y"): int(gamma * requests)})


def test_gamma_drifts() -> None:
    """Ten times the objects in each picture: within a few epochs the second stage has most of the SLO."""
    watch = QueryWatch(QUERY)
    observe(watch, 0.1, 1000)

    assert watch.replan() is None

    for _ in range(4):
        observe(watch, 10, 800)
        watch.replan()

    assert [stage.batch for stage in watch.plan.stages] == [16, 60]
    assert watch.replan() is None  # in force already
    assert watch.query.rate == 800


def test_the_rate_changes_no_split() -> None:
    """All stages need more, in proportion."""
    watch = QueryWatch(QUERY)
    observe(watch, 0.1, 5000)

    assert watch.replan() is None
    assert watch.plan == plan_query(QUERY)


def test_few_requests_say_nothing() -> None:
    """Chance among some dozen requests is not drift."""
    watch = QueryWatch(QUERY)
    watch.observe(10.0, {"x": 20, "y": 200}, {("x", "y"): 200})

    assert watch.replan() is None


def test_a_split_that_became_too_slow_is_not_kept() -> None:
    """At worst a request waits while its batch gathers, which takes longer at a lower rate."""
    stage = {"name": "x", "alpha_ms": 1, "beta_ms": 10}
    query = Query.model_validate({"slo_ms": 200, "rate": 1000, "worst_case": True, "stages": [stage]})
    watch = QueryWatch(query)
    assert watch.plan.stages[0].batch == 90

    watch.observe(10.0, {"x": 500}, {})
    found = watch.replan()

    assert found is not None
    assert found.stages[0].batch == 9
    assert found.accelerators > 50 * 0.1 / 90  # what the batches of before would need, too late


def test_an_epoch_without_requests_says_nothing() -> None:
    """Not that the rate is 0, at which no batch ever gathers."""
    watch = QueryWatch(QUERY.model_copy(update={"slo_ms": 800.0, "worst_case": True}))

    watch.observe(10.0, {}, {})

    assert watch.query.rate == QUERY.rate
    assert watch.replan() is None
