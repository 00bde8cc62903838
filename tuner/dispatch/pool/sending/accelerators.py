"""What the servers execute: pools and schedulers come and go, and the batches that they have sent go on."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

__all__ = ["Accelerator", "Accelerators"]


@dataclass(eq=False)
class Accelerator:
    """One of the instances of a server, with the batches that are on their way to it."""

    ends: float = -math.inf
    """When everything that was sent to it should have ended, s."""
    free: float = -math.inf
    """When its server answered the last batch, s."""
    batches: dict[asyncio.Task[None], object] = field(default_factory=dict)
    """What carries each batch that has not ended, and who sent it."""
    comparing: int = 0
    """Those of them that wait for what another server says."""

    def take(self, batch: asyncio.Task[None], sender: object, ends: float) -> None:
        """Note a batch that is sent here, by whom, and when it should have ended, s."""
        self.ends = max(ends, self.ends) if self.batches else ends
        self.batches[batch] = sender
        batch.add_done_callback(self.batches.pop)


class Accelerators:
    """The accelerators of all servers; pools share those of the servers that they have in common."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Accelerator] = {}

    def of(self, address: str, number: int) -> Accelerator:
        """Return one of a server's accelerators, counted from 0."""
        return self._known.setdefault((address, number), Accelerator())

    def forget(self, address: str) -> None:
        """Forget those of a server."""
        for place in [place for place in self._known if place[0] == address]:
            del self._known[place]
