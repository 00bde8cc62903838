"""What planning needs to know of a scenario; :class:`tuner.cluster.scenario.Scenario` provides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tuner.planning.pools.catalogue import InstanceType
from tuner.workload.sizes import SizeDistribution

__all__ = ["Demand", "PlanningScenario"]


class Demand(Protocol):
    """A session that instances are rented for: a model with its SLO."""

    @property
    def name(self) -> str:
        """Of the session."""

    @property
    def model(self) -> str | None:
        """Its name in the catalogue's profiles."""

    @property
    def slo_ms(self) -> float:
        """The SLO, ms."""

    @property
    def slo(self) -> float:
        """The SLO, s."""

    @property
    def quantile(self) -> float:
        """Share of the requests that must be answered within the SLO."""

    def size_distribution(self) -> SizeDistribution | None:
        """Return how many items requests have; None if they have no sizes."""


class PlanningScenario(Protocol):
    """Sessions with a catalogue and a budget."""

    @property
    def sessions(self) -> Sequence[Demand]:
        """The sessions to serve."""

    @property
    def types(self) -> tuple[InstanceType, ...]:
        """The catalogue."""

    @property
    def budget(self) -> float | None:
        """$/h."""

    @property
    def rented(self) -> Mapping[str, int] | None:
        """Instances by type that run now; None if none are given."""
