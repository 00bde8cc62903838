"""The split of a query's SLO: against an exhaustive one, the paper's figures, and its rivals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tests.planning.queries.naive import exhaustive_split
from tuner.errors import InvalidInput
from tuner.planning.queries import (
    Query,
    accelerators,
    best_split,
    choices_of,
    even_budgets,
    even_split,
    harpagon_split,
    plan_query,
    plan_within,
)
from tuner.planning.queries.query import MOST_STAGES

TREE = {"a": "bc", "b": "", "c": "d", "d": ""}
DIAMOND = {"a": "bc", "b": "d", "c": "d", "d": ""}
NESTED = {"a": "bf", "b": "cd", "c": "e", "d": "e", "e": "g", "f": "g", "g": ""}
GRAPHS = {"chain": {"a": "b", "b": "c", "c": ""}, "tree": TREE, "diamond": DIAMOND, "nested": NESTED}


def make_query(
    graph: dict[str, str], generator: np.random.Generator, largest: int = 4, **fields: Any
) -> Query:
    """Return a query with random lines and gammas over a graph."""
    stages = [
        {
            "name": name,
            "alpha_ms": round(generator.uniform(1, 10)),
            "beta_ms": round(generator.uniform(1, 30)),
            "max_batch": largest,
            "next": [{"stage": other, "gamma": generator.uniform(0.1, 4)} for other in called],
        }
        for name, called in graph.items()
    ]
    return Query.model_validate({"slo_ms": 300, "rate": 100, **fields, "stages": stages})


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
@pytest.mark.parametrize("worst_case", [False, True])
def test_no_split_is_better(graph: dict[str, str], worst_case: bool) -> None:
    """Times in whole milliseconds are exact on a grid of milliseconds: the optimum of all combinations."""
    generator = np.random.default_rng(len(graph))
    for _ in range(4):
        slo = float(generator.integers(350, 500))
        query = make_query(graph, generator, 3, slo_ms=slo, resolution_ms=1, worst_case=worst_case, rate=1e5)
        choices = choices_of(query)

        found = sum(accelerators(query, choices, best_split(query, choices)).values())

        assert found == pytest.approx(exhaustive_split(query, choices), rel=1e-9)


@pytest.mark.parametrize("slo", [30, 60, 120, 300, 1500])
def test_whole_milliseconds_are_exact_unless_told_otherwise(slo: int) -> None:
    """Also where the SLO is no divisor of its thousand steps: what adds up to it exactly fits."""
    generator = np.random.default_rng(slo)
    for _ in range(10):
        stages = [
            {
                "name": name,
                "alpha_ms": generator.integers(1, slo // 9 + 1).item(),
                "beta_ms": slo // 6,
                "max_batch": 4,
                "next": [{"stage": other, "gamma": generator.uniform(0.1, 4)} for other in called],
            }
            for name, called in TREE.items()
        ]
        query = Query.model_validate({"slo_ms": slo, "rate": 100, "stages": stages})
        choices = choices_of(query)

        found = sum(accelerators(query, choices, best_split(query, choices)).values())

        assert found == pytest.approx(exhaustive_split(query, choices), rel=1e-9)


def test_times_that_add_up_to_the_slo_fit() -> None:
    """A short SLO that they fill to the millisecond."""
    calls = [{"stage": "car", "gamma": 0.1}, {"stage": "face", "gamma": 3}]
    stages = [
        {"name": "detect", "alpha_ms": 1, "beta_ms": 20, "next": calls},
        {"name": "car", "alpha_ms": 0.5, "beta_ms": 5},
        {"name": "face", "alpha_ms": 3, "beta_ms": 5},
    ]

    plan = plan_query(Query.model_validate({"slo_ms": 30, "rate": 500, "stages": stages}))

    assert {stage.name: stage.batch for stage in plan.stages} == {"detect": 2, "car": 6, "face": 1}
    assert plan.accelerators == pytest.approx(17.5667, abs=1e-4)


def chain(slo_ms: float, *profiles_ms: dict[int, float], **fields: Any) -> Query:
    """Return a query of stages that call one another in turn."""
    names = "abcdefgh"[: len(profiles_ms)]
    stages = [
        {"name": name, "profile_ms": profile, "next": [{"stage": after}] if after else []}
        for name, after, profile in zip(names, [*names[1:], ""], profiles_ms, strict=True)
    ]
    return Query.model_validate({"slo_ms": slo_ms, "rate": 100, **fields, "stages": stages})


@pytest.mark.parametrize("slo", [3, 10, 40])
def test_the_steps_of_a_short_slo_are_fractions_of_a_millisecond(slo: int) -> None:
    """At least a thousand fit into it; times that are multiples of them are exact."""
    step = 1 / -(-1000 // slo)  # ms
    generator = np.random.default_rng(slo)
    for _ in range(10):
        stages = [
            {
                "name": name,
                "alpha_ms": generator.integers(1, 120).item() * step,
                "beta_ms": round(slo / 6 / step) * step,
                "max_batch": 4,
                "next": [{"stage": other, "gamma": generator.uniform(0.1, 4)} for other in called],
            }
            for name, called in TREE.items()
        ]
        query = Query.model_validate({"slo_ms": slo, "rate": 100, "stages": stages})
        choices = choices_of(query)

        found = sum(accelerators(query, choices, best_split(query, choices)).values())

        assert found == pytest.approx(exhaustive_split(query, choices), rel=1e-9)


def test_rounding_refuses_no_split() -> None:
    """0.1 s and 0.2 s are 0.30000000000000004 s in floating point; and on the grid 50.05 ms take 50.1 ms."""
    for query in (chain(300, {1: 100}, {1: 200}), chain(100, {1: 50.05, 2: 60}, {1: 49.95, 2: 60})):
        assert [stage.batch for stage in plan_query(query).stages] == [1, 1]


def test_what_rounding_to_the_grid_leaves_makes_batches_larger() -> None:
    """In steps of 30 ms only one of two stages may take 31 ms within 100 ms; there is time for both."""
    profile = {1: 20.0, 2: 31.0}
    query = chain(100, profile, profile, resolution_ms=30)

    assert best_split(query, choices_of(query)) == {"a": 2, "b": 2}


def test_an_slo_of_minutes_is_split_in_whole_milliseconds() -> None:
    """The grid has a limit, which only a step of one's own exceeds."""
    query = make_query(TREE, np.random.default_rng(2), slo_ms=90_000)

    assert plan_query(query).accelerators > 0
    with pytest.raises(InvalidInput, match="1 ms cut the SLO into more than 20,000 steps"):
        plan_query(query.model_copy(update={"resolution_ms": 1.0}))


def test_budgets_fill_the_slo_along_the_longest_paths() -> None:
    """No path takes longer than the SLO, and every stage is on one that takes all of it."""
    query = make_query(NESTED, np.random.default_rng(1), largest=64)

    plan = plan_query(query)

    budget = {stage.name: stage.budget for stage in plan.stages}
    assert max(query.through(budget).values()) == pytest.approx(query.slo)
    assert all(stage.latency <= stage.budget * (1 + 1e-9) for stage in plan.stages)


@pytest.mark.parametrize(("gamma", "budgets", "throughput"), [(0.1, (120, 80), 272.7), (10, (80, 120), 40.0)])
def test_the_split_depends_on_gamma(gamma: float, budgets: tuple[int, int], throughput: float) -> None:
    """Figures 3 and 4 of Nexus, all times doubled so that the batches are whole."""
    x = {"name": "x", "profile_ms": {16: 80, 25: 100, 36: 120}, "next": [{"stage": "y", "gamma": gamma}]}
    y = {"name": "y", "profile_ms": {24: 80, 40: 100, 60: 120}}

    plan = plan_query(Query.model_validate({"slo_ms": 200, "rate": 1000, "stages": [x, y]}))

    assert tuple(round(1e3 * stage.budget) for stage in plan.stages) == budgets
    assert 1000 / plan.accelerators == pytest.approx(throughput, abs=0.05)


def test_rivals_keep_the_slo_and_are_no_better() -> None:
    """Of the even split and the greedy one of Harpagon, none needs fewer accelerators on the same formula."""
    generator = np.random.default_rng(7)
    for graph in GRAPHS.values():
        query = make_query(graph, generator, largest=16, resolution_ms=1)
        choices = choices_of(query)
        best = sum(accelerators(query, choices, best_split(query, choices)).values())
        for batches in (even_split(query, choices), harpagon_split(query, choices)):
            assert batches is not None
            times = {n: float(each.time[each.batch.searchsorted(batches[n])]) for n, each in choices.items()}
            assert max(query.through(times).values()) <= query.slo * (1 + 1e-6)
            assert best <= sum(accelerators(query, choices, batches).values()) * (1 + 1e-9)


def test_the_worst_case_holds_only_what_can_gather() -> None:
    """A batch is no larger than what comes in time; without it a note says what does not fit."""
    stage = {"name": "a", "alpha_ms": 1, "beta_ms": 9}
    rare = {"slo_ms": 100, "rate": 50, "stages": [stage]}

    worst = plan_query(Query.model_validate({**rare, "worst_case": True})).stages[0]
    plan = plan_query(Query.model_validate(rare))

    assert worst.batch == 4  # 80 ms to gather, 13 to execute
    assert plan.stages[0].batch == 91
    assert "a: 91 requests take 1800 ms to come" in plan.notes[0]


def test_an_even_split_may_be_impossible() -> None:
    """Where a stage needs more than its part of the SLO even alone, there is none to compare with."""
    slow = {"name": "slow", "profile_ms": {1: 80}, "next": [{"stage": "fast"}]}
    fast = {"name": "fast", "profile_ms": {1: 5}}

    plan = plan_query(Query.model_validate({"slo_ms": 100, "rate": 1, "stages": [slow, fast]}))

    assert plan.even_split is None
    assert plan.to_json()["even_split"] is None


def test_no_split_meets_the_slo() -> None:
    """The longest path is named with what it needs."""
    with pytest.raises(InvalidInput, match=r"no split meets 10 ms: a -> .* with their smallest batches"):
        plan_query(make_query(TREE, np.random.default_rng(0), slo_ms=10))


def test_a_graph_that_is_neither_tree_nor_fork_join() -> None:
    """Branches that cross are refused, with the stages between which they do."""
    crossing = {"a": "bc", "b": "de", "c": "e", "d": "f", "e": "f", "f": ""}

    with pytest.raises(InvalidInput, match="neither a tree nor a fork-join graph"):
        plan_query(make_query(crossing, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ({"a": "b", "b": "c", "c": "b"}, "the query is cyclic: c -> b -> c"),
        ({"a": "a"}, "the query is cyclic: a -> a"),
        ({"a": "b", "b": "x"}, "stage 'b' calls 'x', which is no stage; use a, b"),
        ({"a": "", "b": ""}, "a query begins with one stage, but nothing calls a nor b"),
        ({"a": "bb", "b": ""}, "stage 'a' calls 'b' twice"),
    ],
)
def test_graphs_that_are_no_queries(graph: dict[str, str], said: str) -> None:
    """Each is refused with the stages that are wrong."""
    with pytest.raises(ValidationError, match=said):
        make_query(graph, np.random.default_rng(0))


@pytest.mark.parametrize("branches", [False, True])
def test_a_query_has_no_more_stages_than_can_be_split(branches: bool) -> None:
    """One after the other, or each second one beside all that follow."""

    def query_of(count: int) -> Query:
        profile = {"profile_ms": {1: 1}}
        stages: list[dict[str, Any]] = [{"name": str(number), **profile} for number in range(count)]
        for number in range(0, count - 1, 2 if branches else 1):
            after = [number + 1, number + 2] if branches else [number + 1]
            stages[number]["next"] = [{"stage": str(other)} for other in after if other < count]
        return Query.model_validate({"slo_ms": 500, "rate": 10, "stages": stages})

    assert len(plan_query(query_of(MOST_STAGES)).stages) == MOST_STAGES
    with pytest.raises(ValidationError, match="at most 200"):
        query_of(MOST_STAGES + 1)


def test_given_budgets_are_planned_as_those_that_were_found() -> None:
    """The plan within the budgets of a plan is the same plan; within even ones it needs what that needs."""
    query = make_query(TREE, np.random.default_rng(5), slo_ms=400, worst_case=True, rate=1e4)
    plan = plan_query(query)

    assert plan_within(query, {stage.name: stage.budget for stage in plan.stages}) == plan
    assert plan_within(query, even_budgets(query)).accelerators == pytest.approx(plan.even_split)


@pytest.mark.parametrize(
    ("budgets", "problem"),
    [
        ({"a": 0.1, "b": 0.1, "c": 0.1}, "not so d"),
        ({"a": 0.2, "b": 0.1, "c": 0.1, "d": 0.1}, "take 400 ms along a path"),
        ({"a": 0.2, "b": 0.001, "c": 0.05, "d": 0.05}, "b needs"),
    ],
)
def test_budgets_that_cannot_be_kept_are_refused(budgets: dict[str, float], problem: str) -> None:
    """A stage is missing; a path is longer than the SLO; not even one request is in time."""
    with pytest.raises(InvalidInput, match=problem):
        plan_within(make_query(TREE, np.random.default_rng(5)), budgets)
