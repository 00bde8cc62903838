"""When a rate counts as served."""

from __future__ import annotations

import pytest

from tuner.experiments.dispatch.bench import MODELS, Answered
from tuner.experiments.dispatch.goodput import bad_rates, highest_rate

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


@pytest.mark.parametrize("limit", [100.0, 137.0, 260.0])
def test_the_highest_rate_is_found_to_a_quarter_of_a_step(limit: float) -> None:
    found = highest_rate(lambda rate: rate <= limit, first=100.0, most=900.0)

    assert limit / 1.036 < found <= limit


def test_a_search_ends_at_its_bounds() -> None:
    assert highest_rate(lambda _: False, first=100.0, most=900.0) == 0.0
    assert 900.0 / 1.15 < highest_rate(lambda rate: rate < 900.0, first=100.0, most=900.0) < 900.0
