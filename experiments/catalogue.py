"""The experiments by name. Each is a module with a ``run`` function; nothing is imported before it is run.

A module may also have a ``plot`` function: see :attr:`Experiment.plot`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tuner.errors import InvalidInput
from tuner.experiments.options import Options
from tuner.experiments.result import Result

__all__ = ["EXPERIMENTS", "LIVE", "Experiment", "Options", "find", "papers"]

LIVE = "A live server"
"""The group of measurements of our own; the others are named by their paper."""
SYMPHONY = "Symphony"
NEXUS = "Nexus"


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """An entry of the catalogue."""

    name: str
    title: str
    module: str
    minutes: float
    """About how long it takes on two cores."""
    paper: str = LIVE
    """Whose table or figure it is. Each of those has a page of its own in the documentation."""

    def run(self, options: Options) -> Result:
        """Run it."""
        result = import_module(self.module).run(options)
        assert isinstance(result, Result), (self.module, result)
        return result

    @property
    def plot(self) -> Callable[[Result, Path], list[Path]] | None:
        """Draws the figures of a result into a folder and returns the files; None if there are none.

        The files are called ``NAME.png``, or ``NAME-something.png`` where there are several.
        """
        module: Any = import_module(self.module)
        draw: Callable[[Result, Path], list[Path]] | None = getattr(module, "plot", None)
        return draw


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="triton-sweep",
            title="Exhaustive grid of the embedded Triton's MLP under two loads: the yardstick",
            module="tuner.experiments.triton_sweep",
            minutes=20,
        ),
        Experiment(
            name="triton-convergence",
            title="Windows until RRL is within 15 % of the sweep's best, cold and warm",
            module="tuner.experiments.triton_convergence",
            minutes=32,
        ),
        Experiment(
            name="triton-reconfigure",
            title="50 live reconfigurations under 200 requests/s: failed requests",
            module="tuner.experiments.triton_reconfigure",
            minutes=3,
        ),
        Experiment(
            name="triton-cpu",
            title="CPU saved by --objective cpu under a 40 ms SLO",
            module="tuner.experiments.triton_cpu",
            minutes=8,
        ),
        Experiment(
            name="triton-profile",
            title="l(b) from statistics against a closed-loop measurement",
            module="tuner.experiments.triton_profile",
            minutes=2,
        ),
        Experiment(
            name="sim-vs-real",
            title="Simulated against real p95 on the swept grid",
            module="tuner.experiments.sim_vs_real",
            minutes=1,
        ),
        Experiment(
            name="observe-cost",
            title="CPU and memory of tuner observe at one sample per second",
            module="tuner.experiments.observe_cost",
            minutes=2,
        ),
        Experiment(
            name="symphony-table2",
            title="Spread of the requests per window that a backend gets from 1 and from 25 frontends",
            module="tuner.experiments.symphony.table2",
            minutes=2,
            paper=SYMPHONY,
        ),
        Experiment(
            name="symphony-analytic",
            title="The ideal: batch size and goodput with and without coordination",
            module="tuner.experiments.symphony.analytic",
            minutes=0.1,
            paper=SYMPHONY,
        ),
    )
}


def papers() -> dict[str, list[Experiment]]:
    """Return the experiments grouped by paper, in the order of the catalogue."""
    groups: dict[str, list[Experiment]] = {}
    for experiment in EXPERIMENTS.values():
        groups.setdefault(experiment.paper, []).append(experiment)
    return groups


def find(name: str) -> Experiment:
    """Return an experiment.

    Raises:
        InvalidInput: There is none of that name.
    """
    if name not in EXPERIMENTS:
        raise InvalidInput("NAME", f"no experiment '{name}'", f"there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
