"""When a rate counts as served."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.stats import gmean

from tuner.experiments.dispatch.bench import MODELS, Answered
from tuner.experiments.dispatch.goodput import bad_rates, rates_near_goodput

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


def test_rates_stay_where_every_other_trial_is_kept() -> None:
    """Each system's own, though they rise together."""
    limits = {"a": 100.0, "b": 137.0, "c": 260.0}
    keeps = {name: lambda rate, _, limit=limit: rate <= limit for name, limit in limits.items()}

    found = rates_near_goodput(keeps, 80.0, 900.0, settling=6, counted=10)

    for name, limit in limits.items():
        assert len(found[name]) == 10
        assert gmean(found[name]) == pytest.approx(limit, rel=0.07)


def test_chance_near_the_goodput_averages_out() -> None:
    """A system that keeps 5 % more is found to, though half of the trials near the goodput are chance."""
    rng = np.random.default_rng(0)

    def keep(rate: float, _: int, goodput: float) -> bool:
        return bool(rng.logistic(np.log(goodput), 0.05) > np.log(rate))

    keeps = {"worse": partial(keep, goodput=500.0), "better": partial(keep, goodput=525.0)}
    found = rates_near_goodput(keeps, 200.0, 4000.0, settling=3, counted=400)

    assert gmean(found["better"]) / gmean(found["worse"]) == pytest.approx(1.05, abs=0.02)


def test_systems_have_their_turns() -> None:
    """First in one order and then in the other; those that have failed rise no further."""
    tried: list[tuple[str, float, int]] = []

    def keep(rate: float, number: int, name: str, limit: float) -> bool:
        tried.append((name, rate, number))
        return rate < limit

    keeps = {"a": partial(keep, name="a", limit=160.0), "b": partial(keep, name="b", limit=120.0)}
    rates_near_goodput(keeps, 100.0, 900.0, settling=1, counted=1)

    climb = [("a", 100.0), ("b", 100.0), ("b", 150.0), ("a", 150.0), ("a", 225.0)]
    assert tried[:5] == [(name, rate, 0) for name, rate in climb]
    assert [(name, number) for name, _, number in tried[5:]] == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]


def test_a_search_ends_at_its_bounds() -> None:
    found = rates_near_goodput({"a": lambda *_: False}, 100.0, 900.0, settling=0, counted=2)
    assert found["a"] == pytest.approx([100.0, 100.0 / 1.07])
    found = rates_near_goodput({"a": lambda *_: True}, 100.0, 900.0, settling=9, counted=2)
    assert found["a"] == [900.0, 900.0]
