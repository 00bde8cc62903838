"""The actions of agents that transition."""

from __future__ import annotations

import numpy as np

from tests.agents.bed import make_space
from tuner.agents.rivals.steps import NOTHING, StepActions
from tuner.knobs import Knob, KnobSpace

SPACE = make_space()
STEPS = StepActions(SPACE)


def test_every_action_is_one_step_or_none() -> None:
    """From everywhere, against the space's own neighbours."""
    for configuration in range(SPACE.size):
        targets = STEPS.targets(configuration)

        assert targets[NOTHING] == configuration
        assert sorted(t for t in targets[1:].tolist() if t >= 0) == SPACE.neighbours(configuration).tolist()


def test_actions_turn_their_knob() -> None:
    """Odd ones down, even ones up, in the order of the knobs."""
    middle = SPACE.encode({"max_batch_size": 4, "max_queue_delay": 0.001, "instances": 1})

    turned = [SPACE.decode(t) if t >= 0 else None for t in STEPS.targets(middle).tolist()]

    assert [c["max_batch_size"] for c in turned[1:3] if c] == [2, 8]
    assert [c["max_queue_delay"] for c in turned[3:5] if c] == [0.0005, 0.002]
    assert turned[5] is None
    assert turned[6] is not None
    assert turned[6]["instances"] == 2


def test_only_what_is_allowed_is_an_option() -> None:
    """Doing nothing, too, may be forbidden."""
    targets, options = STEPS.options(0, np.array([1, 70]))

    assert targets[options].tolist() == [1]


def test_step_between_is_read_off() -> None:
    """Two steps are none."""
    for action, target in enumerate(STEPS.targets(14).tolist()):
        assert target < 0 or STEPS.between(14, target) == action
    assert STEPS.between(0, SPACE.size - 1) is None


def test_step_of_a_knob_without_effect_is_none() -> None:
    """A delay means nothing while nothing is batched."""
    space = KnobSpace(
        [
            Knob(name="batch", grid=(1, 2), default=1),
            Knob(name="delay", grid=(0, 1, 2), default=0, idle_when=("batch", 1.0), idle_value=0.0),
        ]
    )

    assert StepActions(space).targets(0).tolist() == [0, -1, 3, -1, -1]
