"""Agents in ``tuner/Cluster-v0`` beside the enumeration of ``symphony-tuned``.

The enumeration tries 13 configurations of the scheduler's knobs for each cluster, on the arrivals of one
seed, and takes the one with the highest goodput. It knows which configurations are worth trying, and searches
the goodput of each. An agent sees 720 configurations and one window after the other, under three loads that
are given as parts of the goodput that the scheduler has with its defaults; the highest of them is above it,
so that the agent learns there what serves more than the defaults do.

What each has chosen is then judged on other arrivals: by its goodput, and under loads between those that the
agents were trained under, by the share of the accelerators' time that it uses. The agents answer a load with
what they know of the nearest one; the enumeration has one answer for all loads.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from tuner.agents.agent import State
from tuner.agents.load_levels import LoadLevels
from tuner.cluster import Outcome, simulate
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.clusters.microbenchmark import (
    LIMIT,
    ClusterPoint,
    points,
    rate,
    sample,
    scenario,
)
from tuner.experiments.symphony.fig4 import shares_below
from tuner.experiments.symphony.tuned import candidates, choose
from tuner.laboratory.agent_run import RunSpec, train_agent
from tuner.report import style
from tuner.report.series import Series
from tuner.scheduling.knobs import options_from, scheduler_space

__all__ = ["Chosen", "ClusterAgents", "TuningTask"]

DEFAULTS, ENUMERATION = "defaults", "enumeration"
AGENTS = ("rrl", "hill_climb", "random")
CLUSTERS = 6
"""Of Table 3, one of each model."""
TRAINED = (0.65, 0.82, 1.03)
"""Loads that the agents are trained under, one after the other, over the goodput of the defaults. They lie at
least a load level apart."""
HELD_OUT = (0.73, 0.92, 1.0)
"""Loads that the choices are judged under, likewise."""
TRAIN_SEED, JUDGE_SEED = 1000, 1
PANELS = ("goodput over the enumeration's", f"accelerator time at {HELD_OUT[0]:g}, over the defaults'")


class TuningTask(NamedTuple):
    """A cluster, and who chooses the configuration of its scheduler."""

    point: ClusterPoint
    chooser: str


class Chosen(NamedTuple):
    """What a choice came to on arrivals that nobody was tuned on."""

    goodput: float
    """Requests/s, of what was chosen for the highest load."""
    busy: tuple[float, ...]
    """Share of the accelerators' time in use, by load of :data:`HELD_OUT`."""
    bad: tuple[float, ...]
    """Share of the requests that is late or dropped, likewise."""


Choice = Callable[[float], Mapping[str, Any]]
"""Returns the policy's options for a load, requests/s."""


@experiment(
    name="cluster-agent",
    title="Agents that turn the scheduler's knobs, beside the enumeration of symphony-tuned",
    paper="Symphony",
    minutes=9,
)
class ClusterAgents(Experiment[TuningTask, Chosen]):
    """Lets everybody choose for every cluster, and judges the choices on other arrivals."""

    requests = Scaled(20_000.0, quick=2_000.0)
    """Of a trial of the enumeration, and of a judgement."""
    window_requests = Scaled(8_000.0, quick=500.0)
    """Of an agent's window, at the goodput of the defaults."""
    windows = Scaled(40, quick=3)
    """Of an agent under each load."""

    def tasks(self) -> list[TuningTask]:
        clusters = points(quick=True)[:1] if self.options.quick else sample(CLUSTERS)
        return [
            TuningTask(point, chooser) for point in clusters for chooser in (DEFAULTS, ENUMERATION, *AGENTS)
        ]

    def measure(self, task: TuningTask, seed: int) -> Chosen:
        point = task.point
        known = self._goodput(point, candidates()[0], TRAIN_SEED + seed)
        choice = self._choice(task, known, TRAIN_SEED + seed)
        outcomes = [self._served(point, choice(load), load, seed) for load in _loads(known, HELD_OUT)]
        return Chosen(
            goodput=self._goodput(point, choice(TRAINED[-1] * known), JUDGE_SEED + seed),
            busy=tuple(one.mean_utilisation for one in outcomes),
            bad=tuple(one.bad_rate for one in outcomes),
        )

    def _choice(self, task: TuningTask, known: float, seed: int) -> Choice:
        """Let somebody choose; ``known`` is the goodput of the defaults on these arrivals, requests/s."""
        if task.chooser == DEFAULTS:
            return lambda load: candidates()[0]  # noqa: ARG005 - one answer for all loads
        if task.chooser == ENUMERATION:
            options = choose(task.point, self.requests, seed)[1]
            return lambda load: options  # noqa: ARG005 - likewise
        spec = RunSpec(
            env="tuner/Cluster-v0",
            arguments={
                "scenario": scenario(task.point, "symphony", {}, requests=self.requests, seed=seed),
                "window": self.window_requests / known,
            },
            rates=tuple(_loads(known, TRAINED)),
            agent=task.chooser,
            seed=seed,
            windows=self.windows,
            exact=False,
        )
        agent, _ = train_agent(spec)
        agent.close()
        space, levels = scheduler_space(), LoadLevels()
        start = int(space.encode(space.default))

        def best(load: float) -> Mapping[str, Any]:
            number = agent.best(State(level=levels.level(load), configuration=start, rate=load))
            return asdict(options_from(space.decode(number)))

        return best

    def _goodput(self, point: ClusterPoint, options: Mapping[str, Any], seed: int) -> float:
        return rate(point, "symphony", options, requests=self.requests, seed=seed)

    def _served(self, point: ClusterPoint, options: Mapping[str, Any], load: float, seed: int) -> Outcome:
        offered = scenario(point, "symphony", options, requests=self.requests, seed=JUDGE_SEED + seed)
        return simulate(offered.model_copy(update={"rate": load}))

    def rows(self, found: Answers[TuningTask, Chosen]) -> Iterator[Row]:
        for chooser in (ENUMERATION, *AGENTS):
            yield row(
                f"{chooser}: goodput over the defaults'", _goodputs(found, chooser, DEFAULTS), unit="ratio"
            )
        for agent in AGENTS:
            ratios = _goodputs(found, agent, ENUMERATION)
            worse = sum(ratio < 1 for ratio in ratios)
            note = f"less in {worse} of {len(ratios)} clusters"
            yield row(f"{agent}: goodput over the enumeration's", ratios, unit="ratio", note=note)
        for place, load in enumerate(HELD_OUT):
            for chooser in (ENUMERATION, *AGENTS):
                name = f"{chooser}: accelerator time at {load:g} of the goodput, over the defaults'"
                note = f"bad rate within {LIMIT:.0%} in {_kept(found, chooser, place)}"
                note += f"; the defaults' in {_kept(found, DEFAULTS, place)}"
                yield row(name, _busy(found, chooser, place), unit="ratio", note=note)

    def series(self, found: Answers[TuningTask, Chosen]) -> Iterator[Series]:
        for agent in AGENTS:
            yield shares_below(agent, PANELS[0], _goodputs(found, agent, ENUMERATION))
        for chooser in (ENUMERATION, *AGENTS):
            yield shares_below(chooser, PANELS[1], _busy(found, chooser, 0))

    def configuration(self) -> dict[str, Any]:
        return {
            "clusters": len({task.point for task in self.tasks()}),
            "requests": self.requests,
            "windows": f"{self.windows} under each of {len(TRAINED)} loads",
            "requests of a window": self.window_requests,
            "trained under": TRAINED,
            "judged under": HELD_OUT,
        }

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw how the ratios are distributed over the clusters."""
        figure, axes = style.figure(
            "Knobs chosen by agents, judged on arrivals that they were not trained on",
            columns=2,
            size=(9.5, 3.9),
        )
        for axis, panel in zip(axes.flat, PANELS, strict=True):
            for one in result.panel(panel):
                color, marker = style.look(one.name, (ENUMERATION, *AGENTS).index(one.name))
                axis.plot(one.x, one.y, color=color, marker=marker, ms=3, label=one.name)
            axis.axvline(1, color=style.MUTED, lw=1)
            axis.set(xlabel=panel, ylabel="share of clusters below", ylim=(0, 1))
            style.legend(axis, loc="best")
        return [style.Drawing(figure)]


def _loads(known: float, parts: Sequence[float]) -> list[float]:
    """Return loads, requests/s, that are parts of a goodput."""
    return [part * known for part in parts]


def _by_cluster(
    found: Answers[TuningTask, Chosen], ours: str, theirs: str, value: Callable[[Chosen], float]
) -> list[float]:
    """Return a value of our choice over that of theirs: per cluster the median of the seeds."""
    return [
        statistics.median(
            value(mine) / value(other)
            for mine, other in zip(chosen, found[TuningTask(task.point, theirs)], strict=True)
        )
        for task, chosen in found.items()
        if task.chooser == ours
    ]


def _goodputs(found: Answers[TuningTask, Chosen], ours: str, theirs: str) -> list[float]:
    return _by_cluster(found, ours, theirs, lambda one: one.goodput)


def _busy(found: Answers[TuningTask, Chosen], chooser: str, place: int) -> list[float]:
    return _by_cluster(found, chooser, DEFAULTS, lambda one: one.busy[place])


def _kept(found: Answers[TuningTask, Chosen], chooser: str, place: int) -> str:
    """Say in how many runs the bad rate was kept under a load."""
    bad = [one.bad[place] for task, chosen in found.items() if task.chooser == chooser for one in chosen]
    return f"{sum(one <= LIMIT for one in bad)} of {len(bad)} runs"
