"""What an operator wants of a target, whatever the control loop thinks best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner.knobs import Configuration

__all__ = ["NoOrders", "OrderBook", "Orders"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    """The orders in force; by default there are none."""

    paused: str = ""
    """Who wants that nothing is changed, and why; empty if nobody does."""
    pinned: Configuration | None = None
    """What the server is to run until this is taken back."""
    rollback: Configuration | None = None
    """What to go back to, once."""

    @property
    def standing(self) -> bool:
        """Whether the server must be left as it is, or as it is pinned."""
        return bool(self.paused) or self.pinned is not None


class OrderBook(Protocol):
    """Where a driver finds its orders, after every window."""

    def read(self) -> Orders:
        """Return the orders in force."""
        ...

    def moved(self, configuration: Configuration) -> None:
        """Somebody else changed a server that is pinned: it stays pinned to what was found."""
        ...

    def done(self) -> None:
        """What was to be rolled back was, or could not be."""
        ...


class NoOrders:
    """The order book of a driver that nobody gives orders."""

    def read(self) -> Orders:
        """Return no orders."""
        return Orders()

    def moved(self, configuration: Configuration) -> None:
        """Cannot happen: nothing is ever pinned."""

    def done(self) -> None:
        """Cannot happen: nothing is ever to be rolled back."""
