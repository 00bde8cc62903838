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
from tuner.experiments.frame.discovery import Declared, declared
from tuner.experiments.frame.options import ExperimentOptions, Options, Watcher
from tuner.experiments.frame.result import Result

__all__ = ["EXPERIMENTS", "LIVE", "Experiment", "Options", "find", "papers"]

LIVE = "A live server"
"""The group of measurements of our own; the others are named by their paper."""
SYMPHONY = "Symphony"
NEXUS = "Nexus"
KAIROS = "Kairos"
RRL = "RRL"


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


LISTED: dict[str, Any] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="triton-sweep",
            title="Exhaustive grid of the embedded Triton's MLP under two loads: the yardstick",
            module="tuner.experiments.live.triton_sweep",
            minutes=20,
        ),
        Experiment(
            name="triton-convergence",
            title="Windows until RRL is within 15 % of the sweep's best, cold and warm",
            module="tuner.experiments.live.triton_convergence",
            minutes=32,
        ),
        Experiment(
            name="triton-reconfigure",
            title="50 live reconfigurations under 200 requests/s: failed requests",
            module="tuner.experiments.live.triton_reconfigure",
            minutes=3,
        ),
        Experiment(
            name="tfserving-reconfigure",
            title="50 live reconfigurations of TensorFlow Serving under 80 requests/s: failed requests",
            module="tuner.experiments.live.tfserving_reconfigure",
            minutes=3,
        ),
        Experiment(
            name="tfserving-quantiles",
            title="Quantiles from TensorFlow Serving's histogram beside those that clients see",
            module="tuner.experiments.live.tfserving_quantiles",
            minutes=3,
        ),
        Experiment(
            name="triton-cpu",
            title="CPU saved by --objective cpu under a 40 ms SLO",
            module="tuner.experiments.live.triton_cpu",
            minutes=8,
        ),
        Experiment(
            name="triton-profile",
            title="l(b) from statistics against a closed-loop measurement",
            module="tuner.experiments.live.triton_profile",
            minutes=2,
        ),
        Experiment(
            name="observe-cost",
            title="CPU and memory of tuner observe at one sample per second",
            module="tuner.experiments.live.observe_cost",
            minutes=2,
        ),
        Experiment(
            name="daemon-faults",
            title="Fourteen kinds of faults in a live server, its network and the daemon that keeps it",
            module="tuner.experiments.daemon.faults",
            minutes=25,
        ),
        Experiment(
            name="daemon-idle",
            title="What watching ten servers costs, and how late a thousand targets in one process are",
            module="tuner.experiments.daemon.idle",
            minutes=7,
        ),
        Experiment(
            name="daemon-spike",
            title="The load triples within a window: windows until the SLO is kept again",
            module="tuner.experiments.daemon.spike",
            minutes=1,
        ),
        Experiment(
            name="daemon-soak",
            title="Two live servers under changing load, kept by the daemon for a thousand decisions",
            module="tuner.experiments.daemon.soak",
            minutes=24,
        ),
        Experiment(
            name="daemon-hindsight",
            title="Changing load in virtual time: the daemon against the best configuration in hindsight",
            module="tuner.experiments.daemon.hindsight",
            minutes=4,
        ),
        Experiment(
            name="sim-to-real",
            title="From simulation to a live Triton: predicted latency, and a policy trained in simulation",
            module="tuner.experiments.rrl.sim_to_real",
            minutes=18,
            paper=RRL,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Bridge:
    """A declared experiment, as long as others are listed here."""

    declared: Declared

    def run(self, options: Options) -> Result:
        """Run it."""
        size = ExperimentOptions(
            seeds=options.seeds,
            quick=options.quick,
            folder=options.folder,
            foreign_limit=options.foreign_limit,
            workers=options.workers,
        )
        return self.declared.load()(size, Watcher(report=options.report, bars=options.bars)).run()

    @property
    def plot(self) -> Any:
        """Draws its figures."""
        kind = self.declared.load()
        return kind.plot if kind.has_figure() else None

    def __getattr__(self, name: str) -> Any:
        """Return what is known of it."""
        return getattr(self.declared if name == "module" else self.declared.about, name)


EXPERIMENTS: dict[str, Any] = LISTED | {name: Bridge(one) for name, one in declared().items()}


def papers() -> dict[str, list[Any]]:
    """Return the experiments grouped by paper, in the order of the catalogue."""
    groups: dict[str, list[Any]] = {}
    for experiment in EXPERIMENTS.values():
        groups.setdefault(experiment.paper, []).append(experiment)
    return groups


def find(name: str) -> Any:
    """Return an experiment.

    Raises:
        InvalidInput: There is none of that name.
    """
    if name not in EXPERIMENTS:
        raise InvalidInput("NAME", f"no experiment '{name}'", f"there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
