"""Numbers drawn ahead: their distribution, and that each is used once and in order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cluster.builders import jitter
from tuner.cluster import draws
from tuner.cluster.draws import Draws, lognormal_factor
from tuner.cluster.engine import pick
from tuner.cluster.execution import make_execution


def constant(generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A network that is always the same."""
    return np.array([0.1]), np.array([0.2]), np.array([0.3])


@pytest.mark.parametrize("deviation", [0.05, 0.5])
def test_lognormal_factors(deviation: float) -> None:
    """Their mean is 1 and their deviation the given one."""
    drawn = lognormal_factor(deviation)(np.random.default_rng(1), 100_000)

    assert drawn.mean() == pytest.approx(1.0, abs=0.01)
    assert drawn.std() == pytest.approx(deviation, rel=0.02)
    assert drawn.min() > 0


def test_constants_need_no_ring() -> None:
    """Without noise and jitter there is one number each, and nothing is ever used up."""
    execution = Draws(1, lognormal_factor(0.0), constant).begin(make_execution(1))

    assert [ring.tolist() for ring in execution[-4:]] == [[1.0], [0.1], [0.2], [0.3]]
    assert execution.clock[0].filled > 1 << 60


@pytest.mark.parametrize("pause", [1, 5, 8, 16])
def test_each_number_is_used_once(pause: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever more are drawn, batch after batch gets the next number of each stream."""
    monkeypatch.setattr(draws, "BLOCK", 8)
    source = Draws(1, lognormal_factor(0.5), jitter)
    execution = source.begin(make_execution(1))
    factors, responses = [], []
    for draw in range(100):
        factors.append(pick(execution.factor, draw))
        responses.append(pick(execution.response, draw))
        execution.clock[0].drawn = draw + 1
        if (draw + 1) % pause == 0:
            source.refill(execution)
    generators = [np.random.default_rng((1, stream)) for stream in (1, 2)]
    expected = [lognormal_factor(0.5)(generators[0], 8) for _ in range(13)]
    delays = [jitter(generators[1], 8)[2] for _ in range(13)]

    assert factors == np.concatenate(expected)[:100].tolist()
    assert responses == np.concatenate(delays)[:100].tolist()
