"""What people allow a driver to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tuner.control.decide.decision import Apply, Rollback
from tuner.control.decide.orders import Orders
from tuner.control.drive.order_book import NoOrders, OrderBook

__all__ = ["Oversight"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Oversight:
    """What people allow a driver to do."""

    apply: bool = True
    """False only recommends."""
    permit: Callable[[Apply | Rollback], bool] = lambda _: True
    """Whether a decision may be carried out now, such as within a maintenance window."""
    orders: OrderBook = field(default_factory=NoOrders)
    """What an operator wants."""
    canary: bool = False
    """Whether one replica tries a configuration first, where there are several."""

    def forbids(self, decision: Apply | Rollback, orders: Orders) -> str:
        """Return why a change that was decided a while ago may not be made now; nothing if it may.

        Args:
            decision: The change.
            orders: The orders under which it was decided.
        """
        now = self.orders.read()
        if now != orders:
            return f"paused meanwhile: {now.paused}" if now.paused else "another order came meanwhile"
        return "" if self.permit(decision) else "no change is permitted any more"
