"""Learning how long requests take."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.scheduling.distribution.predictor import learn, make_predictor, predict, spread


def test_nothing_is_known_at_first() -> None:
    """Before any request has ended, every time is 0."""
    predictor = make_predictor(2, 1, 1000)

    assert predict(predictor, 0, 0, 1) == predict(predictor, 1, 0, 1000) == 0


def test_one_size_makes_times_proportional() -> None:
    """With one size seen, others are predicted in proportion."""
    predictor = make_predictor(1, 1, 1000)
    learn(predictor, 0, 0, 100, 0.05, 0.0)

    assert predict(predictor, 0, 0, 100) == pytest.approx(0.05)
    assert predict(predictor, 0, 0, 300) == pytest.approx(0.15)


@pytest.mark.parametrize("sizes", [(100, 200), (100, 101)])
def test_two_sizes_make_a_line(sizes: tuple[int, int]) -> None:
    """Times on a line are predicted exactly everywhere after two sizes, however near to each other."""
    predictor = make_predictor(2, 2, 1000)
    for items in sizes:
        learn(predictor, 1, 1, items, 0.004 + 0.0003 * items, 0.0)

    for items in (1, 150, 1000):
        assert predict(predictor, 1, 1, items) == pytest.approx(0.004 + 0.0003 * items)
    assert predict(predictor, 0, 1, 100) == predict(predictor, 1, 0, 100) == 0


def test_the_table_replaces_the_line() -> None:
    """Where times bend away from any line, what was seen there counts after a handful of requests."""
    rng = np.random.default_rng(1)
    predictor = make_predictor(1, 1, 1000)
    for items in rng.integers(1, 1001, 4000).tolist():
        learn(predictor, 0, 0, items, bent(items), predict(predictor, 0, 0, items))

    errors = [predict(predictor, 0, 0, items) / bent(items) - 1 for items in range(105, 1000, 10)]
    assert max(np.abs(errors)) < 0.05  # the line alone is off by more than 60 %
    assert spread(predictor, 0, 0) < 0.05


def bent(items: int) -> float:
    return 0.01 + 0.0001 * items + (0.2 if items > 700 else 0.0)


def test_what_was_seen_counts_more_with_every_request() -> None:
    """After n requests, 80 ms off, the line is corrected there by n/(n + 1) of that, fully from n = 5 on."""
    predictor = make_predictor(1, 1, 1000)
    predictor.lines[0, 0] = np.array((2, 100, 0.1, 1, 0, 0.001, 0, 0), predictor.lines.dtype)
    cell = predictor.cells[0, 0, 40]

    for seen, share in enumerate((0, 1 / 2, 2 / 3, 3 / 4, 4 / 5, 1, 1)):
        cell.seen, cell.items, cell.seconds = seen, 405, 0.405 + 0.08

        for items in (401, 410):
            assert predict(predictor, 0, 0, items) == pytest.approx(0.001 * items + 0.08 * share)
        for items in (400, 411):
            assert predict(predictor, 0, 0, items) == pytest.approx(0.001 * items)
    cell.seconds = -1.0
    assert predict(predictor, 0, 0, 405) == 0.0  # never below


def test_larger_queries_are_never_expected_to_be_faster() -> None:
    """A falling line is taken for a level one."""
    predictor = make_predictor(1, 1, 1000)
    learn(predictor, 0, 0, 100, 0.05, 0.0)
    learn(predictor, 0, 0, 900, 0.04, 0.0)

    assert predict(predictor, 0, 0, 500) == pytest.approx(0.045)
    assert predict(predictor, 0, 0, 1000) >= predict(predictor, 0, 0, 900)


def test_change_is_followed() -> None:
    """When hardware gets slower, a few hundred requests are enough to know."""
    predictor = make_predictor(1, 1, 1000)
    rng = np.random.default_rng(2)
    for slowness in (1.0, 1.5):
        for items in rng.choice([120, 150, 400], 600).tolist():
            learn(predictor, 0, 0, items, slowness * 0.0003 * items, 0.0)

    assert predict(predictor, 0, 0, 150) == pytest.approx(1.5 * 0.0003 * 150, rel=0.06)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_the_spread_is_the_noise(noise: float) -> None:
    """How far predictions are off is known after some hundred requests."""
    predictor = make_predictor(1, 1, 1000)
    rng = np.random.default_rng(3)
    for items in rng.choice([120, 150, 400, 800], 2000).tolist():
        seconds = 0.0003 * items / (1 + noise * np.clip(rng.standard_normal(), -3, 3))
        learn(predictor, 0, 0, items, seconds, predict(predictor, 0, 0, items))

    assert spread(predictor, 0, 0) == pytest.approx(noise, rel=0.15, abs=1e-9)
