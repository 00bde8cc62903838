"""Advice for a server that was only watched."""

from __future__ import annotations

import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement
from tuner.control.decide.evidence import SPREAD
from tuner.laboratory.advice import advise


@pytest.mark.parametrize(("share", "change"), [(0.02, True), (-0.02, False)])
def test_a_change_is_advised_where_the_control_loop_would_make_it(share: float, change: bool) -> None:
    """From the same gain on."""
    agent, watched = ScriptedAgent(), measurement(0.020)
    expected = OBJECTIVE.cost(watched) * (1 - SPREAD - share)
    agent.learned = {SPACE.encode(configuration()): 1.0, SPACE.encode(configuration(4)): expected}

    advice = advise(SPACE, OBJECTIVE, configuration(), [watched], agent=agent)

    assert advice.change is change
    assert advice.configuration == configuration(4 if change else 1)
