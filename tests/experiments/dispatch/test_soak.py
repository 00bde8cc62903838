"""What half an hour through the dispatcher says of growth."""

from __future__ import annotations

import pytest

from tests.experiments.quick import quick
from tuner.experiments.dispatch.bench import HEAVY, rates_of
from tuner.experiments.dispatch.soak import DispatchSoak, Piece, Soaked


def soaked(leak: float = 0.0, slower: float = 0.0) -> dict[None, list[Soaked]]:
    """What came of 40 pieces: each takes so much more memory, and so much longer, than the one before."""
    pieces = [Piece(10.0 + slower * number, 30.0, 200.0 + leak * number, 15) for number in range(40)]
    return {None: [Soaked(pieces, {"OK": 990, "DEADLINE_EXCEEDED": 10}, wrong=0)]}


def rows(found: dict[None, list[Soaked]]) -> dict[str, float | None]:
    """The experiment's figures by name."""
    return {one.id: one.measured for one in quick(DispatchSoak).rows(found)}


def test_what_stays_does_not_grow() -> None:
    """Nor do open files; refused requests are counted."""
    found = rows(soaked())

    assert found["growth of memory after warm-up"] == found["growth of p50 after warm-up"] == 0.0
    assert found["growth of open files after warm-up"] == 0.0
    assert found["answered"] == pytest.approx(99.0)


def test_what_grows_shows() -> None:
    """From the end of the first quarter to the end."""
    found = rows(soaked(leak=1.0, slower=0.1))

    assert found["growth of memory after warm-up"] == pytest.approx(100 * (237.5 / 211.5 - 1), rel=1e-3)
    assert found["growth of p50 after warm-up"] == pytest.approx(100 * (13.75 / 11.15 - 1), rel=1e-3)


def test_rates_are_divided_by_the_shares() -> None:
    """Although those of some of the models do not add up to one."""
    assert rates_of(HEAVY[1:], 700.0) == pytest.approx({"mlp": 400.0, "cnn": 300.0})
