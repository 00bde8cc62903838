"""The clients of the soak: the load they send, and how they judge what they get."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tuner.experiments.daemon.servers import Kept
from tuner.profiler.load.generator import LoadGenerator

__all__ = ["PHASE", "SLO", "WINDOW", "Clients", "SloShare", "load_until_it_breaks", "serve"]

WINDOW = 1.0
"""Of the daemon and of the judges, s."""
SLO = 0.050
"""Mean latency that clients are to see, s: three to five times that of a good configuration, because the same
one is now and then half as fast here for minutes."""
PHASE = 20.0
"""For how long the load is high, and for how long low, s."""
TRIED, COARSE, FINE, BROKEN = 10, 1.15, 1.05, 0.75
"""Of `load_until_it_breaks`: windows at each load, how much higher the next is, at first and from the last
one that was borne, and the share of them kept at which it ends."""
LEAST, MOST = 0.5, 2.0
"""Where it begins and where it ends at the latest, in high loads of the server's own."""
LATE = 3.0
"""How long after its end a window is judged, s: answers may be outstanding."""


class Lost(NamedTuple):
    """A window that broke the SLO."""

    time: float
    """When it began, s since 1970."""
    rate: float
    """Requests/s that were sent in it."""
    latency: float
    """Mean, s; NaN if nothing was answered."""
    failed: int


@dataclass(kw_only=True)
class SloShare:
    """What the clients of a server saw."""

    kept: int = 0
    windows: int = 0
    failed: int = 0
    """Requests."""
    sent: int = 0
    lost: list[Lost] = field(default_factory=list)

    @property
    def attainment(self) -> float:
        """Share of the windows that kept the SLO, %."""
        return 100 * self.kept / self.windows if self.windows else math.nan

    def __add__(self, other: SloShare) -> SloShare:
        """What was seen in both."""
        return SloShare(
            kept=self.kept + other.kept,
            windows=self.windows + other.windows,
            failed=self.failed + other.failed,
            sent=self.sent + other.sent,
            lost=self.lost + other.lost,
        )


@dataclass(kw_only=True)
class Clients:
    """The clients of one server: their load, and what they say."""

    kept: Kept
    load: LoadGenerator
    share: SloShare = field(default_factory=SloShare)
    high: float = 0.0
    """The high load, requests/s; 0: the server's own."""

    @property
    def rates(self) -> tuple[float, float]:
        """Low and high load, requests/s."""
        return self.kept.rates[0], self.high or self.kept.rates[1]

    def judge(self, begin: float) -> None:
        """Count the window that began at a time, s on the monotonic clock."""
        sample = self.load.sample(begin, begin + WINDOW)
        good = sample.latency[np.isfinite(sample.latency)]
        self.share.windows += 1
        self.share.sent += len(sample.intended)
        self.share.failed += sample.failed
        mean = float(good.mean()) if good.size else math.nan
        if mean <= SLO and not sample.failed:
            self.share.kept += 1
        else:
            when = time.time() - time.monotonic() + begin
            self.share.lost.append(Lost(when, len(sample.intended) / WINDOW, mean, sample.failed))


def serve(
    clients: Sequence[Clients], seconds: float, watch: Callable[[], None] = lambda: None
) -> list[SloShare]:
    """Let the load go up and down for a while, in opposite directions, and return what clients saw.

    Args:
        clients: Of all servers.
        seconds: How long.
        watch: Called after each window was judged.
    """
    begun = judged = time.monotonic()
    for client in clients:
        client.share = SloShare()
    phase, end = -1, begun + seconds
    while judged + WINDOW <= end:
        now = time.monotonic()
        if int((now - begun) / PHASE) != phase and now < end:
            phase = int((now - begun) / PHASE)
            for number, client in enumerate(clients):
                client.load.set_rate(client.rates[(phase + number) % 2])
        while judged + WINDOW <= min(now - LATE, end):
            for client in clients:
                client.judge(judged)
            judged += WINDOW
            watch()
        time.sleep(0.1)
    return [client.share for client in clients]


def load_until_it_breaks(clients: Sequence[Clients], report: Callable[[str], None]) -> None:
    """Raise each high load until what the servers run now no longer always keeps the SLO.

    The same machine is faster one day than the other, and at a load that anything can bear nothing is to be
    learned; far beyond it nothing helps. The others have their low loads meanwhile.
    """
    for client in clients:
        for other in clients:
            other.load.set_rate(other.rates[0])
        borne = LEAST * client.kept.rates[1]
        for faster in (COARSE, FINE):
            client.high = borne
            while _bears(client) and client.high < MOST * client.kept.rates[1]:
                borne, client.high = client.high, round(client.high * faster)
            report(f"{client.kept.name}: {client.high:g} requests/s, {client.share.attainment:.0f} % kept")


def _bears(client: Clients) -> bool:
    """Return whether the SLO is kept under the high load; then let it recover under the low one."""
    client.load.set_rate(client.high)
    client.share = SloShare()
    begun = time.monotonic() + WINDOW
    for number in range(TRIED):
        time.sleep(max(begun + (number + 1) * WINDOW + LATE - time.monotonic(), 0.0))
        client.judge(begun + number * WINDOW)
    client.load.set_rate(client.rates[0])
    time.sleep(LATE)
    return client.share.attainment > 100 * BROKEN
