"""Where a driver reads an operator's orders, and where it notes what became of them."""

from __future__ import annotations

from typing import Protocol

from tuner.control.decide.orders import Orders
from tuner.knobs import Configuration

__all__ = ["NoOrders", "OrderBook"]


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
