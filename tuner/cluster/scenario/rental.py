"""The instances that a scenario rents from a catalogue: types, price, and what each type served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from tuner.cluster.outcome import Outcome, SessionOutcome
from tuner.cluster.scenario.session import Session
from tuner.files.schema import StrictPart
from tuner.planning.pools.catalogue import InstanceType

__all__ = ["Rental", "Rented"]


class Rented(StrictPart):
    """Instances of one type, as the file names them."""

    type: str = Field(min_length=1)
    count: Annotated[int, Field(strict=True, ge=0, le=10_000)]


@dataclass(frozen=True, kw_only=True)
class Rental:
    """The rented pool. An instance is an accelerator; its type is the kind of the accelerator."""

    types: tuple[InstanceType, ...]
    """The rented types, in the catalogue's order."""
    counts: tuple[int, ...]
    """Instances of each."""

    @cached_property
    def pool(self) -> dict[str, int]:
        """Instances by type."""
        return {kind.name: count for kind, count in zip(self.types, self.counts, strict=True)}

    @property
    def cost(self) -> float:
        """Price of the pool, $/h."""
        return sum(kind.price * count for kind, count in zip(self.types, self.counts, strict=True))

    def busy(self, outcome: Outcome) -> dict[str, float]:
        """Return the share of the measured time that the instances of each type executed, on average."""
        shares, first = {}, 0
        for name, count in self.pool.items():
            shares[name] = sum(outcome.utilisation[first : first + count]) / count
            first += count
        return shares

    def served(self, session: SessionOutcome) -> dict[str, int]:
        """Return the requests of a session that each type answered."""
        return dict(zip(self.pool, session.served.tolist(), strict=True))

    def to_json(self, sessions: Sequence[Session], outcome: Outcome) -> dict[str, Any]:
        """Return the content of ``tuner simulate --json`` for rented instances.

        Args:
            sessions: The sessions of the scenario, with copies written out.
            outcome: The outcome of its simulation.
        """
        pairs = zip(sessions, outcome.sessions, strict=True)
        return {
            "instances": [{"type": name, "count": count} for name, count in self.pool.items()],
            "cost": round(self.cost, 6),
            "requests": outcome.requests,
            "rate": outcome.rate,
            "kept": outcome.kept,
            **outcome.to_json(),
            "sessions": [self._row(session, one) for session, one in pairs],
            "busy": self.busy(outcome),
        }

    def _row(self, session: Session, outcome: SessionOutcome) -> dict[str, Any]:
        return {
            "name": session.name,
            "model": session.model,
            "slo_ms": session.slo_ms,
            "quantile": session.quantile,
            "rate": outcome.rate,
            "within_slo": 1 - outcome.bad_rate,
            "kept": outcome.kept,
            **outcome.to_json(),
            "served": self.served(outcome),
        }
