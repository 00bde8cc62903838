"""The servers that the neural estimator is trained on and judged by."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.envs.randomised import FAMILIES, RandomServer, draw_server
from tuner.knobs import Role

pytestmark = pytest.mark.compiled
SLOW = 1618
"""A seed of the training whose Triton is so slow that its longest delay is more than live servers take."""


def drawn(family: str, seed: int, width: float = 1.0) -> RandomServer:
    return draw_server(family, np.random.default_rng([seed, 1]), width)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_draws_the_same_server(family: str) -> None:
    """And another one another server."""
    first, again, other = drawn(family, 7), drawn(family, 7), drawn(family, 8)

    assert (first.model, first.space, first.rate) == (again.model, again.space, again.rate)
    np.testing.assert_array_equal(first.executions, again.executions)
    assert first.rate != other.rate


@pytest.mark.parametrize("width", [1.0, 1.5])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_seed_draws_a_server_with_a_load(family: str, width: float) -> None:
    """Also where the ranges are wider than those of the training."""
    for seed in range(200):
        server = drawn(family, seed, width)
        assert 0.0 < server.rate < np.inf
        assert server.seconds > 0.0
        assert server.space.size > 1


def test_delays_grow_with_the_execution() -> None:
    """Up to more than a second, which no live server takes."""
    server = drawn("triton", SLOW)

    delay = server.space.with_role(Role.DELAY)
    assert delay is not None
    assert delay.grid[-1] > 1.0
