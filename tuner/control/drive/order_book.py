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

    def moved(self, pinned: Configuration, found: Configuration) -> None:
        """Move a pin to what somebody else has set.

        Args:
            pinned: The pin, as it was read. An order that was given since then stays.
            found: What the server runs.

        Raises:
            StorageError: It cannot be written.
        """
        ...

    def done(self, rollback: Configuration) -> None:
        """Strike out an order to roll back: it was carried out, or could not be.

        Args:
            rollback: The order, as it was read. An order that was given since then stays.

        Raises:
            StorageError: It cannot be written.
        """
        ...


class NoOrders:
    """The order book of a driver that takes no orders."""

    def read(self) -> Orders:
        """Return no orders."""
        return Orders()

    def moved(self, pinned: Configuration, found: Configuration) -> None:
        """Do nothing: no server is ever pinned."""

    def done(self, rollback: Configuration) -> None:
        """Do nothing: no rollback is ever ordered."""
