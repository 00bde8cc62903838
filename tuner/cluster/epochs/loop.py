"""The closed loop: a planner looks at the rates and may plan again; models load, and routes follow.

The planner looks at what happened at least every ``LOOK`` seconds, and at the end of each epoch. It knows the
rates only from what came. An accelerator that loads models executes nothing meanwhile; requests are sent by
the new plan when all its models are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from tuner.cluster.epochs.nexus import NexusEpochs
from tuner.cluster.epochs.record import EpochRecord, EpochRun, Observed, Observer
from tuner.cluster.epochs.symphony import SymphonyEpochs
from tuner.cluster.scenario import Scenario
from tuner.cluster.simulation import Simulation
from tuner.errors import InvalidInput

__all__ = ["simulate_epochs"]

LOOK = 10.0
"""s; epochs begin at least that far apart (Nexus, section 5)."""


class Planner(Protocol):
    """A planner: it looks at each interval, and changes its simulation."""

    simulation: Simulation

    def begin(self) -> None:
        """Make the first plan."""

    def end_interval(self, seen: Observed, epoch_ended: bool) -> EpochRecord:
        """Plan again if an interval calls for it; return a record of the interval."""

    def loaded_at(self) -> float:
        """Return when the models that are being loaded will be there, s; infinite if there are none."""

    def interval_ends(self) -> float:
        """Return when the present interval ends at the latest, s; infinite if there is no such time."""

    def use_loaded(self) -> None:
        """Go over to the plan whose models have been loaded."""


def simulate_epochs(
    scenario: Scenario,
    *,
    progress: Callable[[float], None] | None = None,
    fixed: bool = False,
) -> EpochRun:
    """Simulate a scenario with a planner from beginning to end.

    Args:
        scenario: Its ``planner`` plans each epoch.
        progress: Called with the share done so far, in [0, 1].
        fixed: Advice is given and not followed: all accelerators are in use (Symphony).

    Raises:
        InvalidInput: It has no planner, or one that cannot plan for its accelerators or keep their memory, or
            a rented pool, or the number of requests instead of a time.
    """
    _check(scenario)
    planner: Planner = (
        SymphonyEpochs(scenario, fixed=fixed) if scenario.planner == "symphony" else NexusEpochs(scenario)
    )
    simulation, until = planner.simulation, scenario.interval.last
    planner.begin()
    observer, records = Observer(simulation), list[EpochRecord]()
    epoch_ends = scenario.epoch_s
    while simulation.now < until:
        look = min(simulation.now + min(LOOK, scenario.epoch_s), until, epoch_ends, planner.interval_ends())
        for now in _advance(planner, look):
            if progress is not None:
                progress(now / until)
        records.append(planner.end_interval(observer.look(), simulation.now >= epoch_ends))
        if planner.loaded_at() <= simulation.now:  # after the record, which is of the time before
            planner.use_loaded()
        if records[-1].planned or simulation.now >= epoch_ends:
            epoch_ends = simulation.now + scenario.epoch_s
    simulation.drain()
    return EpochRun(outcome=simulation.outcome(), records=tuple(records))


def _check(scenario: Scenario) -> None:
    """Raise InvalidInput if the scenario is none that a planner can plan for."""
    if scenario.planner is None:
        raise InvalidInput("planner", "there is none", "use `tuner.cluster.simulate`")
    for name, problem in scenario.unplannable().items():  # the first is told
        raise InvalidInput(name, problem)


def _advance(planner: Planner, until: float) -> Iterator[float]:
    """Let time pass up to a time, s, and use each plan when its models are loaded; yield the virtual time."""
    simulation = planner.simulation
    while simulation.now < until:
        yield from simulation.steps(min(until, planner.loaded_at()))
        if planner.loaded_at() <= simulation.now < until:
            planner.use_loaded()
