"""What a backend may know of the number of its accelerators, beside its knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from tuner.planning.autoscale import ScalingAdvice

__all__ = ["ComingAndGoing", "Replicated", "ScalingSource"]


@runtime_checkable
class ScalingSource(Protocol):
    """A backend that counts bad requests and idle time itself, and advises from them."""

    def scaling(self) -> Mapping[str, ScalingAdvice]:
        """Return its advice, by pool of accelerators.

        Raises:
            AdapterError: The server cannot be asked.
        """
        ...


@runtime_checkable
class Replicated(Protocol):
    """A backend of several servers."""

    @property
    def replicas(self) -> int:
        """How many of them answered when they were last asked."""
        ...


@runtime_checkable
class ComingAndGoing(Protocol):
    """A backend of several servers that notices when one of them comes or goes."""

    @property
    def turnover(self) -> int:
        """How often one of them came or went, as far as was noticed when they were asked."""
        ...
