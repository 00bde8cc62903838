"""A query is split again when its gammas drift, and only when that saves accelerators."""

from __future__ import annotations

import pytest

from tuner.errors import InvalidInput
from tuner.planning.queries import Query, QueryWatch, plan_query

X = {"name": "x", "profile_ms": {16: 80, 25: 100, 36: 120}, "next": [{"stage": "y", "gamma": 0.1}]}
Y = {"name": "y", "profile_ms": {24: 80, 40: 100, 60: 120}}
ASKED = {"slo_ms": 200, "rate": 1000}
QUERY = Query.model_validate({**ASKED, "stages": [X, Y]})


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


def test_calls_that_are_left_out_are_none() -> None:
    """In the pictures of the night nothing is found, and who counts calls as they come has no entry."""
    left_out, told = QueryWatch(QUERY), QueryWatch(QUERY)
    for watch, calls in ((left_out, {}), (told, {("x", "y"): 0})):
        observe(watch, 10, 1000)
        for _ in range(4):
            watch.observe(10.0, {"x": 10_000}, calls)

    assert left_out.query == told.query
    (call,) = left_out.query.by_name["x"].next
    assert call.gamma == pytest.approx(10 / 31)  # the epoch of the day counts a sixteenth by now


@pytest.mark.parametrize(
    ("seconds", "requests", "calls", "words"),
    [
        (0.0, {"x": 1}, {}, "seconds: 0.0 is not a positive number"),
        (float("nan"), {"x": 1}, {}, "seconds: nan is not a positive number"),
        (10.0, {"X": 1}, {}, "requests: the query has no stage 'X'; it has x, y"),
        (10.0, {"x": 1}, {("y", "x"): 1}, "calls: no stage 'y' calls 'x'"),
    ],
)
def test_an_epoch_of_another_query_is_refused(
    seconds: float, requests: dict[str, int], calls: dict[tuple[str, str], int], words: str
) -> None:
    """A name that is mistyped would else be ignored for ever; nothing is counted."""
    watch = QueryWatch(QUERY)

    with pytest.raises(InvalidInput, match=words):
        watch.observe(seconds, requests, calls)
    assert watch.query == QUERY


def test_the_rate_changes_no_split() -> None:
    """All stages need more, in proportion."""
    watch = QueryWatch(QUERY)
    observe(watch, 0.1, 5000)

    assert watch.replan() is None
    assert watch.plan == plan_query(QUERY)


@pytest.mark.parametrize(("gamma", "taken"), [(0.8, False), (1.2, True)])
def test_a_split_is_new_only_where_it_saves_noticeably(gamma: float, taken: bool) -> None:
    """At a gamma of 0.8 the best one would save 2 % of the accelerators, at 1.2 it saves 5 %."""
    watch = QueryWatch(QUERY)
    before = watch.plan
    observe(watch, gamma, 1000)

    assert (watch.replan() is not None) == taken
    assert (watch.plan == before) == (not taken)


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
    """Neither that the rate is 0, at which no batch ever gathers, nor that a gamma is what was planned."""
    watch = QueryWatch(QUERY.model_copy(update={"slo_ms": 800.0, "worst_case": True}))
    observe(watch, 0.2, 1000)
    watch.replan()
    learned = watch.query

    for _ in range(8):  # faded, fewer than a hundred requests would be left
        watch.observe(10.0, {}, {})

    assert watch.query == learned
    assert learned.rate == QUERY.rate
    assert learned.by_name["x"].next[0].gamma == pytest.approx(0.2)
    assert watch.replan() is None


def test_calls_that_come_after_their_requests_count() -> None:
    """Requests stopped with the epoch, and half of their calls came in the next; nothing fades meanwhile."""
    watch = QueryWatch(QUERY)
    watch.observe(10.0, {"x": 1000, "y": 1000}, {("x", "y"): 1000})
    watch.observe(10.0, {"y": 1000}, {("x", "y"): 1000})

    (call,) = watch.query.by_name["x"].next
    assert call.gamma == 2.0


def test_a_stage_that_is_not_called_any_more_is_planned_one_by_one() -> None:
    """At worst no second request of a batch would come in time."""
    last = {"name": "y", "alpha_ms": 1, "beta_ms": 10}
    watch = QueryWatch(
        Query.model_validate({"slo_ms": 800, "rate": 1000, "worst_case": True, "stages": [X, last]})
    )
    watch.observe(10.0, {"x": 10_000}, {})

    found = watch.replan()

    assert found is not None
    assert {stage.name: stage.batch for stage in found.stages}["y"] == 1


def test_a_stage_that_is_rarely_asked_keeps_its_gamma() -> None:
    """While only the stages before it are asked, nothing is seen of its calls."""
    deep, last = {**Y, "next": [{"stage": "z", "gamma": 0.1}]}, {"name": "z", "alpha_ms": 1, "beta_ms": 5}
    watch = QueryWatch(Query.model_validate({**ASKED, "stages": [X, deep, last]}))
    watch.observe(10.0, {"x": 10_000, "y": 1000}, {("x", "y"): 1000, ("y", "z"): 500})

    for _ in range(8):
        watch.observe(10.0, {"x": 10_000}, {})

    assert watch.query.by_name["y"].next[0].gamma == pytest.approx(0.5)
    assert watch.query.by_name["x"].next[0].gamma < 0.001
