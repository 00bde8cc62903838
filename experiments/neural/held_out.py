"""What the neural estimator is worth: agents tune servers that training has not seen.

Each server is watched for one window in its default configuration before an agent chooses. The agent learns
from that window, as in the control loop, unless it is a walk that starts elsewhere. All agents of a seed get
the same server; those that start from a profile get the same one, which is wrong by a tenth or more. A seed
is a server, so run it with ``--seeds 20`` or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.agents.rrl.neural.prior import NeuralPrior
from tuner.agents.rrl.prior import LogCosts
from tuner.agents.rrl.smoothing import SmoothingParameters
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.neural.servers import TRUTHS, HeldOutServer, Learning, nominal_prior, tune

if TYPE_CHECKING:
    from tuner.agents.agent import Agent

__all__ = ["ASKED", "WINDOWS", "HeldOut", "HeldOutTask", "learn"]

WINDOWS = 50
FIRST = 50000
"""The seed of the first server; training has others (:mod:`tuner.experiments.neural.samples`). Networks,
factors, limits and choices were compared on those from 5000 to 38044."""
ARMS = ("rrl", "rrl, network's mean only", "rrl, network upside down", "rrl, nominal simulator",
        "rrl, nothing known", "hill_climb", "hill_climb from the network's pick")  # fmt: skip
EVERYWHERE = ("rrl", "rrl, nothing known", "hill_climb from the network's pick")
"""Arms in every cell; the others are compared on servers like those of the training alone."""
FAMILIES = {"triton": tuple(TRUTHS), "tfserving_cpu": ("like the training", "bent truth"),
            "tfserving_gpu": ("like the training", "bent truth")}  # fmt: skip
ASKED = {
    ("triton", "like the training"): (1.0, 5.0),
    ("triton", "wider than the training"): (2.0, 8.0),
    ("triton", "bent truth"): (6.0, 20.0),
    ("triton", "lying profile"): (1.5, 8.0),
    ("tfserving_cpu", "like the training"): (1.0, 3.0),
    ("tfserving_gpu", "like the training"): (1.0, 3.0),
}
"""What was asked for: per cent above the oracle, and windows."""


class HeldOutTask(NamedTuple):
    """Servers of a kind."""

    family: str
    truth: str

    @property
    def arms(self) -> tuple[str, ...]:
        """The agents that tune them; no simulator of TensorFlow Serving has nominal constants."""
        if self.truth != "like the training":
            return EVERYWHERE
        return tuple(arm for arm in ARMS if self.family == "triton" or arm != "rrl, nominal simulator")


@experiment(
    name="neural-held-out",
    title="Agents with and without the neural estimator on servers that it has never seen",
    minutes=16,
)
class HeldOut(Experiment[HeldOutTask, dict[str, Learning]]):
    """Lets every agent tune every server."""

    first_seed = FIRST
    windows = Scaled(WINDOWS, quick=10)

    def tasks(self) -> list[HeldOutTask]:
        return [HeldOutTask(family, truth) for family, truths in FAMILIES.items() for truth in truths]

    def measure(self, task: HeldOutTask, seed: int) -> dict[str, Learning]:
        server = HeldOutServer(task.family, TRUTHS[task.truth], seed)
        return {arm: learn(arm, server, seed, self.windows) for arm in task.arms}

    def rows(self, found: Answers[HeldOutTask, dict[str, Learning]]) -> Iterator[Row]:
        for task, answers in found.items():
            for arm in task.arms:
                yield from _rows(task, arm, [answer[arm] for answer in answers])

    def configuration(self) -> dict[str, Any]:
        return {"windows": self.windows, "seeds": "each is a server", "first server": FIRST}


class _MeanOnly(NeuralPrior):
    """The estimator as a plain regressor, which does not say what configurations have in common."""

    def at(self, load: float, left: float = 1.0) -> LogCosts:
        expected = super().at(load, left)
        return expected._replace(loadings=np.empty((expected.mean.size, 0)))


class _UpsideDown(NeuralPrior):
    """The worst network there could be: what it takes for the best is the worst."""

    def at(self, load: float, left: float = 1.0) -> LogCosts:
        expected = super().at(load, left)
        mean = np.minimum(expected.mean, expected.mean.min() + SmoothingParameters().ceiling)
        return expected._replace(mean=mean.min() + mean.max() - mean)


NETWORKS = {
    "rrl": NeuralPrior,
    "rrl, network's mean only": _MeanOnly,
    "rrl, network upside down": _UpsideDown,
}
"""What takes the network's place, by the arm."""


def learn(arm: str, server: HeldOutServer, seed: int, windows: int) -> Learning:
    """Let the agent of an arm tune a server, as if it had just started."""
    server.restart()
    agent = _agent(arm, server, seed)
    try:
        return tune(server, agent, windows, taught="pick" not in arm)
    finally:
        agent.close()


def _agent(arm: str, server: HeldOutServer, seed: int) -> Agent:
    from tuner.agents.catalogue import make_agent
    from tuner.agents.rrl import RRL

    space = server.space
    known = NeuralPrior(space, server.objective, knowledge=server.knowledge)
    if arm.startswith("hill_climb"):
        start = space.encode(space.default)
        if "pick" in arm:
            expected = known.at(math.log2(server.server.rate))
            start = int(np.argmin(expected.mean + expected.deviation))
        return make_agent("hill_climb", space, seed=seed, start=start)
    agent = RRL(space, seed=seed, synchronous=True)
    if arm in NETWORKS:
        agent.start_from(NETWORKS[arm](space, server.objective, knowledge=server.knowledge))
    elif arm == "rrl, nominal simulator":
        agent.start_from(nominal_prior(server))
    return agent


def _rows(task: HeldOutTask, arm: str, learnings: Sequence[Learning]) -> Iterator[Row]:
    name = f"{task.family}, {task.truth}, {arm}"
    above, settled = ASKED.get((task.family, task.truth), (None, None)) if arm == "rrl" else (None, None)
    costs = [100 * one.above for one in learnings]
    yield row(f"{name}: mean cost above the oracle's", costs, unit="%", note=_asked(above))
    worst = float(np.quantile(costs, 0.9))
    yield Row(id=f"{name}: the same, worst tenth", measured=worst, unit="%")
    windows = [one.settled for one in learnings]
    yield row(f"{name}: windows until within 5 % for good", windows, unit="windows", note=_asked(settled))
    yield row(f"{name}: first pick above the best", [100 * one.first for one in learnings], unit="%")
    yield row(f"{name}: windows above 1.5 times the SLO", [100 * one.broken for one in learnings], unit="%")


def _asked(most: float | None) -> str:
    return "" if most is None else f"asked for: at most {most:g}"
