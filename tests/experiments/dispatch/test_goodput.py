"""When a rate counts as served."""

from __future__ import annotations

from functools import partial

import pytest

from tuner.experiments.dispatch.bench import MODELS, Answered
from tuner.experiments.dispatch.goodput import bad_rates, highest_rates

RATE, SECONDS = 100, 6


def answered(late: dict[int, int], *, right: bool = True) -> tuple[list[tuple[float, str]], list[Answered]]:
    """Requests of the first model at equal times; of those of a second, so many are late."""
    model = MODELS[0]
    offered = [(number / RATE, model.name) for number in range(RATE * SECONDS)]
    found = []
    for number, _ in enumerate(offered):
        is_late = number % RATE < late.get(number // RATE, 0)
        found.append(Answered(model.name, model.slo * (2 if is_late else 0.5), "OK", right))
    return offered, found


def test_one_pause_counts_for_no_system() -> None:
    """The second with most late answers is left out; what is late in the others counts."""
    assert bad_rates(*answered({3: 20}), MODELS)[MODELS[0].name] == 0.0
    assert bad_rates(*answered({1: 5, 3: 20}), MODELS)[MODELS[0].name] == pytest.approx(0.01)


def test_wrong_answers_are_bad() -> None:
    """However soon they come; a model without requests is not."""
    rates = bad_rates(*answered({}, right=False), MODELS)

    assert (rates[MODELS[0].name], rates[MODELS[1].name]) == (1.0, 0.0)


def test_the_highest_rates_are_found_to_a_part_of_a_step() -> None:
    """Each system's own, though they rise together."""
    limits = {"a": 100.0, "b": 137.0, "c": 260.0}
    keeps = {name: lambda rate, limit=limit: rate <= limit for name, limit in limits.items()}

    found = highest_rates(keeps, first=100.0, most=900.0)

    assert all(limit / 1.04 < found[name] <= limit for name, limit in limits.items())


def test_systems_have_their_turns() -> None:
    """At each rate all that are left are tried, first in one order and then in the other."""
    tried: list[tuple[str, float]] = []

    def keep(name: str, rate: float) -> bool:
        tried.append((name, rate))
        return rate < 130.0

    highest_rates({name: partial(keep, name) for name in "ab"}, first=100.0, most=900.0)

    assert [name for name, rate in tried if rate < 110.0] == ["a", "b"]
    assert [name for name, rate in tried if 124.0 < rate < 126.0] == ["b", "a"]
    assert [name for name, rate in tried if 139.0 < rate < 140.0] == ["a", "a", "b", "b"]
    assert [name for name, rate in tried if 131.0 < rate < 133.0] == ["b", "b", "a", "a"]


def test_one_failure_is_forgiven() -> None:
    failures = iter([False])

    found = highest_rates({"a": lambda rate: next(failures, rate < 120.0)}, first=100.0, most=900.0)

    assert found["a"] > 120.0 / 1.04


def test_a_search_ends_at_its_bounds() -> None:
    assert highest_rates({"a": lambda _: False}, first=100.0, most=900.0) == {"a": 0.0}
    found = highest_rates({"a": lambda rate: rate < 900.0}, first=100.0, most=900.0)
    assert 900.0 / 1.25 < found["a"] < 900.0
