"""What networks see."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.agents.bed import make_space
from tuner.agents import State
from tuner.agents.rivals.inputs import FARTHEST, Inputs

SPACE = make_space()


def seen(level: int, configuration: int, *observation: float) -> State:
    return State(level=level, configuration=configuration, observation=np.array(observation, np.float32))


def test_vector_holds_observation_load_cost_and_configuration() -> None:
    """In that order; cost as its logarithm, coordinates in -1..1."""
    raw = Inputs(SPACE).raw(seen(20, SPACE.size - 1, 3.0, 4.0), 2.0)

    assert raw.tolist() == pytest.approx([3.0, 4.0, 20.0, math.log(2.0), 1.0, 1.0, 1.0])


def test_standardised_with_what_was_learned() -> None:
    """Mean 0 and spread 1 over the windows, against numpy; coordinates stay as they are."""
    generator, inputs = np.random.default_rng(0), Inputs(SPACE)
    rows = np.array(
        [inputs.raw(seen(int(generator.integers(9)), 0, *generator.normal(5, 3, 2)), 1.5) for _ in range(50)]
    )
    for row in rows:
        inputs.learn(row)

    vectors = inputs.standardised(rows)

    expected = (rows[:, :3] - rows[:, :3].mean(axis=0)) / rows[:, :3].std(axis=0)
    np.testing.assert_allclose(vectors[:, :3], expected, rtol=1e-5, atol=1e-5)
    assert np.abs(vectors[:, 3]).max() < 1e-6  # the cost never changed
    assert (vectors[:, 4:] == -1.0).all()
    assert vectors.dtype == np.float32


def test_far_values_are_cut_off() -> None:
    """The first window under another load is no earthquake."""
    inputs = Inputs(SPACE)
    for _ in range(5):
        inputs.learn(inputs.raw(seen(20, 0, 1.0), 1.0))

    vector = inputs.standardised(inputs.raw(seen(90, 0, 1e6), 1e9))

    assert np.abs(vector).max() == FARTHEST


def test_blind_windows_look_like_the_others() -> None:
    """A state without an observation, after some with one."""
    inputs = Inputs(SPACE)
    for value in (1.0, 3.0):
        inputs.learn(inputs.raw(seen(20, 0, value), 1.0))

    raw = inputs.raw(State(level=20, configuration=0), 1.0)

    assert raw[0] == pytest.approx(2.0)
    assert raw.size == inputs.width
