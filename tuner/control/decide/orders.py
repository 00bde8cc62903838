"""Operators' orders to a target: they come before everything that the control loop would decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner.knobs import Configuration

__all__ = ["NoOrders", "OrderBook", "Orders"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    """The orders in force; by default there are none."""

    paused: str = ""
    """Who has paused the target, and why; empty if nobody has."""
    pinned: Configuration | None = None
    """The configuration that the server must run until it is unpinned."""
    rollback: Configuration | None = None
    """The configuration to return to, once."""

    @property
    def standing(self) -> bool:
        """Whether the server is paused or pinned."""
        return bool(self.paused) or self.pinned is not None


class OrderBook(Protocol):
    """Where a driver reads the orders after every window."""

    def read(self) -> Orders:
        """Return the orders in force."""
        ...

    def moved(self, configuration: Configuration) -> None:
        """Move a pin to a configuration that somebody else has set."""
        ...

    def done(self) -> None:
        """Strike out an order to roll back: it was carried out, or could not be."""
        ...


class NoOrders:
    """The order book of a driver that takes no orders."""

    def read(self) -> Orders:
        """Return no orders."""
        return Orders()

    def moved(self, configuration: Configuration) -> None:
        """Do nothing: no server is ever pinned."""

    def done(self) -> None:
        """Do nothing: no rollback is ever ordered."""
