"""The experiments by name. Each is a module with a ``run`` function; nothing is imported before it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tuner.errors import InvalidInput
from tuner.experiments.result import Result

__all__ = ["EXPERIMENTS", "Experiment", "Options", "find"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What every experiment is told."""

    seeds: int
    quick: bool
    folder: Path
    """Where earlier results lie, which some experiments build on."""
    report: Callable[[str], None]
    """Told in a line about progress."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """An entry of the catalogue."""

    name: str
    title: str
    module: str
    minutes: float
    """About how long it takes on two cores."""

    def run(self, options: Options) -> Result:
        """Run it."""
        result = import_module(self.module).run(options)
        assert isinstance(result, Result), (self.module, result)
        return result


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
    )
}


def find(name: str) -> Experiment:
    """Return an experiment.

    Raises:
        InvalidInput: There is none of that name.
    """
    if name not in EXPERIMENTS:
        raise InvalidInput("NAME", f"no experiment '{name}'", f"there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
