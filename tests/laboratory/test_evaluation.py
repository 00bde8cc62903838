"""Policies are judged by windows that they were not trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.laboratory.agent_runs import SMALL
from tuner.agents.training import episode_seed, learn
from tuner.laboratory.agent_run import RunSpec
from tuner.laboratory.evaluation import POLICY, START, PolicyEvaluation, evaluate, evaluation_seed
from tuner.laboratory.training import train

SPEC = RunSpec(**SMALL | {"rates": (100.0, 150.0), "windows": 4})


def test_no_arrivals_of_the_training_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy chose by what chance gave it there. All that are compared meet the same, but for that."""
    seeds: list[int] = []

    def noting(*arguments: Any, seed: int, **others: Any) -> Any:
        seeds.append(seed)
        return learn(*arguments, seed=seed, **others)

    monkeypatch.setattr("tuner.laboratory.agent_run.learn", noting)
    train(SPEC, tmp_path).agent.close()
    training = set(seeds)

    seeds.clear()
    runs = [evaluate(PolicyEvaluation(SPEC.seeded(seed), POLICY, tmp_path)) for seed in range(3)]
    evaluation = seeds.copy()
    evaluate(PolicyEvaluation(SPEC, START, tmp_path))

    assert training.isdisjoint(evaluation)
    assert len(set(evaluation)) == 6
    assert seeds[6:] == evaluation[:2]
    assert [run.spec.seed for run in runs] == [0, 1, 2]


def test_no_episode_of_a_training_has_the_seed_of_an_evaluation() -> None:
    """Nor one of many: a training by `learn` may have as many as it likes."""
    evaluated = {evaluation_seed(seed) for seed in range(4)}

    assert len(evaluated) == 4
    assert evaluated.isdisjoint(episode_seed(seed, episode) for seed in range(4) for episode in range(1000))
