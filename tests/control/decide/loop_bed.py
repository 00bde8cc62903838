"""A control loop whose agent proposes what a test says."""

from __future__ import annotations

from typing import Any

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent
from tuner.control import ControlLoop, GuardLimits
from tuner.knobs import Configuration


def loop_with(*proposals: Configuration, **limits: Any) -> tuple[ControlLoop, ScriptedAgent]:
    agent = ScriptedAgent(*proposals)
    return ControlLoop(SPACE, OBJECTIVE, agent, limits=GuardLimits(**limits)), agent
