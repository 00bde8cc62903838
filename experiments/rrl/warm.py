"""RRL with a start: windows to converge when a simulation, more or less wrong, says what to expect.

Inception V3 on the CPU server (1,331 configurations) and on the GPU server under a constant load. Before the
first window the agent is given a cost for every configuration. The simulation that these costs come from is
wrong by a fifth everywhere, and beside that at random, by another error for each configuration. How large
that error is in reality is what sim-to-real measures on a live server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row
from tuner.experiments.rrl.study import CPU, GPU, LEARNING, MEAN, QUICK_WINDOWS, figure_rows, nominal_rate
from tuner.laboratory.agent_run import RunSpec, new_agent, serving, train_agent
from tuner.laboratory.figures import above
from tuner.laboratory.metrics import Figures, figures_of
from tuner.report import style
from tuner.report.series import Series, curve

if TYPE_CHECKING:
    from tuner.agents.agent import Agent

__all__ = ["BIAS", "LOADS", "WarmStart", "WarmTask", "with_wrong_prior"]

WINDOWS = 200
LOADS = (0.6, 0.8, 1.0, 1.2)
"""Over the nominal one: at which the simulation says what to expect."""
BIAS = 1.2
"""By which factor the simulation is wrong everywhere."""
SERVERS = {"CPU": CPU, "GPU": GPU}
TARGETS = {None: 60.0, 0.1: 10.0}
"""Windows to converge that are to be reached on the CPU server, cold and warm."""


class WarmTask(NamedTuple):
    """A start on a server."""

    server: str
    error: float | None
    """Of the simulation that the agent starts from; None is a cold start."""


@experiment(
    name="rrl-warm",
    title="Windows to converge when a simulation, more or less wrong, says what to expect",
    paper="RRL",
    minutes=5,
)
class WarmStart(Experiment[WarmTask, Figures]):
    """Trains one agent for each server and error."""

    errors = Scaled[tuple[float | None, ...]]((None, 0.0, 0.05, 0.1, 0.2, 0.4), quick=(None,))
    """Standard deviation of the logarithm of the random error; None is a cold start."""
    windows = Scaled(WINDOWS, quick=QUICK_WINDOWS)

    def tasks(self) -> list[WarmTask]:
        return [WarmTask(server, error) for server in SERVERS for error in self.errors]

    def measure(self, task: WarmTask, seed: int) -> Figures:
        spec = RunSpec(
            env=SERVERS[task.server],
            arguments={"model": "inception", **MEAN},
            workload="constant",
            seed=seed,
            windows=self.windows,
            exact=not self.options.quick,
        )

        def make(spec: RunSpec, env: Any) -> Agent:
            agent = new_agent(spec, env)
            return agent if task.error is None else with_wrong_prior(agent, spec, env, task.error)

        agent, run = train_agent(spec, make=make)
        agent.close()
        return figures_of(run)

    def rows(self, found: Answers[WarmTask, Figures]) -> Iterator[Row]:
        for task, figures in found.items():
            yield from _rows(task, figures)

    def series(self, found: Answers[WarmTask, Figures]) -> Iterator[Series]:
        """Windows to converge against the error; the cold start stands at the end."""
        known = [error for error in self.errors if error is not None]
        places = [100.0 * error for error in known]
        for server in SERVERS:
            columns = [
                [min(f.windows_to_converge, float(WINDOWS)) for f in found[WarmTask(server, error)]]
                for error in (*known, None)
            ]
            yield curve(server, [*places, _cold(places)], columns, panel="windows")

    def configuration(self) -> dict[str, Any]:
        errors = list(self.errors)
        return {"windows": WINDOWS, "loads": list(LOADS), "bias": BIAS, "errors": errors, **MEAN}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the windows to converge against how wrong the simulation is."""
        title = f"Windows until near the oracle for good; median and range of {result.seeds} seeds"
        figure, axes = style.figure(title, size=(7.5, 4))
        axis = axes[0, 0]
        curves = result.panel("windows")
        style.curves(axis, [_cut(one, slice(-1)) for one in curves])
        for index, one in enumerate(_cut(one, slice(-1, None)) for one in curves):  # a cold start is no error
            color, marker = style.look(one.name, index)
            x, (middle,) = one.x[0] + 0.6 * (2 * index - 1), style.floats(one.y)
            low, high = (style.floats(values or one.y)[0] for values in (one.low, one.high))
            axis.errorbar(
                [x], [middle], [[middle - low], [high - middle]], color=color, marker=marker, ms=5, lw=1.4
            )
        axis.axhline(TARGETS[0.1], color=style.MUTED, lw=1, ls="--", label="ten windows")
        places = curves[0].x
        axis.set_xticks(places, [*(f"{place:g} %" for place in places[:-1]), "cold"])
        axis.set(
            xlabel="random error of the simulation",
            ylabel=f"windows to converge ({WINDOWS}: not at all)",
            yscale="log",
        )
        style.decades(axis.yaxis)
        above(axis)
        return [style.Drawing(figure)]


def with_wrong_prior(agent: Agent, spec: RunSpec, env: Any, error: float) -> Agent:
    """Give an agent what a wrong simulation says as its prior.

    Args:
        agent: RRL that learned nothing yet.
        spec: The run.
        env: Its environment, which knows the truth.
        error: Standard deviation of the logarithm of the random error, beside :data:`BIAS`.

    Returns:
        The agent.
    """
    from tuner.agents.rrl import RRL
    from tuner.agents.rrl.prior import make_prior

    assert isinstance(agent, RRL)
    world = serving(env)
    generator = np.random.default_rng([spec.seed, 17])
    wrong = BIAS * generator.lognormal(0.0, error, world.space.size)
    nominal = nominal_rate(spec)
    agent.start_from(
        make_prior([nominal * x for x in LOADS], lambda rate: world.expected_costs(rate) * wrong)
    )
    return agent


def _label(error: float | None) -> str:
    return "cold" if error is None else f"told, wrong by {100 * error:.0f} %"


def _rows(task: WarmTask, figures: Sequence[Figures]) -> Iterator[Row]:
    name = f"Inception on {task.server}, {_label(task.error)}"
    target = TARGETS.get(task.error)
    note = f"to be reached: {target:g}" if target and task.server == "CPU" else ""
    return figure_rows(name, figures, LEARNING, notes={"windows to converge": note})


def _cold(places: Sequence[float]) -> float:
    return 1.25 * max(places, default=40.0)


def _cut(one: Series, part: slice) -> Series:
    """Return a part of a curve."""
    names = ("x", "y", "low", "high")
    return one.model_copy(update={name: getattr(one, name)[part] for name in names})
