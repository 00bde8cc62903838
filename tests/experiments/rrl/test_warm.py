"""The warm start of RRL: its prior is wrong by as much as it says, and the agent believes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.experiments.quick import quick
from tuner.agents.rrl import RRL
from tuner.experiments.rrl import warm
from tuner.experiments.rrl.study import MEAN
from tuner.experiments.rrl.warm import WarmStart, with_wrong_prior
from tuner.knobs import KnobSpace
from tuner.laboratory.agent_run import RunSpec, new_agent, serving, stage_environment


class World:
    """An environment whose costs are known: that of number n is n + 1."""

    def __init__(self, space: KnobSpace) -> None:
        self.space = space

    def expected_costs(self, rate: float) -> np.ndarray:
        return np.arange(1.0, self.space.size + 1)


def test_the_prior_is_wrong_by_a_fifth_and_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's prior is the truth, 1.2 times, and a tenth up or down."""
    spec = RunSpec(env="tuner/TFServingCPU-v0", arguments=dict(MEAN), windows=2)
    env = stage_environment(spec)
    agent = new_agent(spec, env)
    world = World(serving(env).space)
    monkeypatch.setattr(warm, "serving", lambda _: world)
    monkeypatch.setattr(warm, "nominal_rate", lambda _: 14.0)

    with_wrong_prior(agent, spec, env, 0.1)

    assert isinstance(agent, RRL)
    wrong = agent.perception.smoother.prior.at(np.log2(14.0)).mean - np.log(world.expected_costs(14.0))
    assert np.mean(wrong) == pytest.approx(np.log(warm.BIAS), abs=0.01)
    assert np.std(wrong) == pytest.approx(0.1, rel=0.1)
    agent.close()
    env.close()


def test_a_quick_run_has_the_cold_start_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exact costs take their time, and a prior needs them."""
    monkeypatch.setattr(WarmStart, "windows", 4)

    result = quick(WarmStart).run()

    assert {row.id.split(":")[0] for row in result.rows} == {f"Inception on {s}, cold" for s in warm.SERVERS}
    assert WarmStart.plot(result, tmp_path)[0].exists()
