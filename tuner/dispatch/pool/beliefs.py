"""What is believed of servers: how long batches take there, and how long the way is.

It outlives schedulers and pools, so that nothing is learned twice.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Hashable, Iterable, Sequence

import numpy as np

from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.pool.profiles import DRIFT, LearnedProfile, prior_table
from tuner.dispatch.pool.stream import Stream
from tuner.scheduling.cluster import Delays

__all__ = ["LEAST_PATIENCE", "Beliefs", "noticeable"]

NOTICEABLE = 0.03
"""Relative change of a profile below which the scheduler keeps the old one."""
NOTICEABLE_DELAY = 0.2
"""Relative change of the delay to the servers below which the scheduler keeps the old one."""
HOPELESS, FORGET_AFTER = 0.5, 1.0
"""A profile by which even a batch of 1 takes more than this part of the SLO may keep all batches away. If no
batch has ended for this time, s, it is forgotten: nothing else would show that it is wrong. One that is only
assumed counts as this part of the SLO at once, also if it keeps only requests of many items away, as it does
where a policy plans them by their items. What was measured of larger batches that take so long is doubted
after a while, too: one that was slow by accident would keep all others from being tried."""
LATENESS, LATENESS_LASTS = 200, 5.0
"""How many timers, and how many grants, the delays are learned from: the latest, of the last seconds. Delays
that keep all requests away are measured no more, so they must not outlast what made them."""
TIMER_LATE = 1e-3
"""s by which a timer is late where little is known of it."""
PATIENCE, LEAST_PATIENCE = 5.0, 0.1
"""How many times as long as expected a batch may take before its server counts as lost, and at least how
long, s."""
PATIENCE_LATELY = 2.0
"""How many times as long as the longest of the last ones it may take in any case: one that was given up shows
at its end that the server has become slower, long before this is expected of others."""
FRONT = 0.5e-3
"""s that an answer takes within the dispatcher, from the server's to the client's connection."""


_Basis = tuple[int, int, float, tuple[float, float] | None]
"""What a prior is made from: largest batch, largest one of the model, SLO in s, and what is given."""


class Beliefs:
    """What was learned of the profiles, by server and stream, and of the delays on the way.

    Args:
        quantile: Share of the batches that should not take longer than is believed.
    """

    def __init__(self, quantile: float = 0.95) -> None:
        self.quantile = quantile
        self._profiles: dict[tuple[str, str, Hashable], tuple[LearnedProfile, _Basis]] = {}
        self._lateness = _Recent(TIMER_LATE)
        self._frontends = _Recent(0.0)

    def profile(self, server: WatchedServer, stream: Stream) -> LearnedProfile:
        """Return the profile of a stream on a server, with the prior that the stream has now."""
        place = (server.address, stream.session.name, stream.kind)
        basis = (stream.largest, stream.most, stream.session.slo, stream.session.prior)
        found, known = self._profiles.get(place, (None, None))
        if found is not None and known == basis:
            return found
        if found is None:
            found = LearnedProfile(_prior(stream))
        else:
            found.assume(_prior(stream))
        self._profiles[place] = found, basis
        return found

    def forget(self, address: str) -> None:
        """Forget a server."""
        for place in [place for place in self._profiles if place[0] == address]:
            del self._profiles[place]

    def forget_session(self, session: str) -> None:
        """Forget a session."""
        for place in [place for place in self._profiles if place[1] == session]:
            del self._profiles[place]

    def kinds(self, session: str) -> list[Hashable]:
        """Return the kinds of a session's requests that there are profiles of, the oldest first."""
        found = [kind for _, name, kind in self._profiles if name == session and kind is not None]
        return list(dict.fromkeys(found))

    def keep_only(self, session: str, kinds: Container[Hashable]) -> None:
        """Forget the profiles of a session's kinds except these, and that of requests that go one by one."""
        for place in list(self._profiles):
            if place[1] == session and place[2] is not None and place[2] not in kinds:
                del self._profiles[place]

    def learn(
        self, server: WatchedServer, stream: Stream, items: int, seconds: float, now: float, *, trial: bool
    ) -> None:
        """Learn from a batch.

        Args:
            server: What has executed it.
            stream: Whose requests are in it.
            items: Its size.
            seconds: How long the server worked on it.
            now: When it ended, s.
            trial: Whether a request of it should have been too late. If the batch was quicker than believed,
                what was learned is wrong, also where the answer was late: the request may have been offered
                again shortly before its deadline.
        """
        profile = self.profile(server, stream)
        wrong = trial and seconds * DRIFT < self.duration(server, stream, items)
        if wrong and profile.tried and not profile.sure(now):
            profile.forget()
        profile.observe(items, seconds, now)

    def duration(self, server: WatchedServer, stream: Stream, items: int) -> float:
        """Return how long a server should work on a batch, s.

        Args:
            server: The server.
            stream: Whose requests are in the batch.
            items: Size of the batch; more than the largest batch counts as that.
        """
        return float(self.profile(server, stream).table(self.quantile)[min(items, stream.largest)])

    def patience(self, server: WatchedServer, stream: Stream, items: int) -> float:
        """Return how long to wait for a batch before its server counts as lost, s.

        One that is larger than all that were executed may take as long as its items one by one.
        """
        profile, longest = self.profile(server, stream), self.duration(server, stream, items)
        if not profile.has_executed(items):
            longest = max(longest, items * self.duration(server, stream, 1))
        lately = PATIENCE_LATELY * profile.longest_lately
        return max(PATIENCE * longest, lately, stream.session.slo, LEAST_PATIENCE)

    def tables(
        self, servers: Sequence[WatchedServer], streams: Iterable[Stream], now: float
    ) -> list[np.ndarray]:
        """Return what is known of each stream's profile on some servers.   # M x (K, B+1) s."""
        return [np.array([self._table(server, stream, now) for server in servers]) for stream in streams]

    def _table(self, server: WatchedServer, stream: Stream, now: float) -> np.ndarray:
        """Return what the scheduler is told of a stream on a server; see ``HOPELESS``.   # (B+1,) s."""
        profile = self.profile(server, stream)
        table = profile.table(self.quantile)
        hopeless = int(np.searchsorted(table, HOPELESS * stream.session.slo, side="right"))
        if 1 < hopeless < table.size:
            profile.doubt(hopeless, now)
            table = profile.table(self.quantile)
        if table[1] > HOPELESS * stream.session.slo and now - profile.seen > FORGET_AFTER:
            profile.forget()
            table = profile.table(self.quantile)
        if table[-1 if stream.sized else 1] > HOPELESS * stream.session.slo and not profile.tried:
            table = np.minimum(table, HOPELESS * stream.session.slo)
        return table

    def unsure(self, servers: Iterable[WatchedServer], stream: Stream, now: float) -> frozenset[int]:
        """Return the places of those servers of which it is not known for sure how long batches take."""
        return frozenset(
            place for place, server in enumerate(servers) if not self.profile(server, stream).sure(now)
        )

    def timer_was_late(self, seconds: float, now: float) -> None:
        """Note by how much one of our own timers was late, s; and when, s."""
        self._lateness.note(seconds, now)

    def frontend_was_away(self, seconds: float, now: float) -> None:
        """Note how long a frontend with a grant was busy with anything else than asking the server, s."""
        self._frontends.note(seconds, now)

    def delays(self, servers: Iterable[WatchedServer], now: float) -> Delays:
        """Return the delays of the network and of our own timers, s."""
        trip = max((server.round_trip for server in servers), default=0.0) + self._frontends.most(now)
        return Delays(control=trip / 2 + self._lateness.most(now), response=trip / 2 + FRONT)

    def quickest(self, servers: Iterable[WatchedServer], stream: Stream, items: int, now: float) -> float:
        """Return the shortest time from sending a batch to its answer, s; infinite without a server.

        On a server where it is not known for sure how long batches take, that may be no time at all.
        """
        times = [
            server.round_trip
            + (self.duration(server, stream, items) if self.profile(server, stream).sure(now) else 0.0)
            for server in servers
        ]
        return min(times, default=math.inf)


class _Recent:
    """How long something took lately; one time alone, such as a pause of our whole process, does not count.

    Args:
        usual: What is assumed of it, s.
    """

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._kept: deque[tuple[float, float]] = deque(maxlen=LATENESS)  # when it ended, how long it took, s

    def note(self, seconds: float, now: float) -> None:
        """Note how long it took, and that this was now, s."""
        self._kept.append((now, max(seconds, 0.0)))

    def most(self, now: float) -> float:
        """Return what 95 % of the last times did not exceed, s."""
        while self._kept and self._kept[0][0] < now - LATENESS_LASTS:
            self._kept.popleft()
        known = [self._usual, *(seconds for _, seconds in self._kept)]
        return float(np.quantile(known, 0.95, method="lower"))


def _prior(stream: Stream) -> np.ndarray:
    """Return what is assumed of a stream's profile until it is learned.   # (B+1,) s."""
    table = prior_table(stream.most, stream.session.slo)[: stream.largest + 1]
    if stream.session.prior is not None:
        alpha, beta = stream.session.prior
        table[1:] = alpha * np.arange(1, stream.largest + 1) + beta
    return table


def noticeable(
    known: Sequence[np.ndarray], assumed: Delays, tables: Sequence[np.ndarray], delays: Delays
) -> bool:
    """Return whether profiles or delays differ noticeably from those that a policy assumes.

    Args:
        known: The profile of each stream on each server, as the policy assumes it.   # M x (K, B+1) s
        assumed: The delays of the network, as the policy assumes them.
        tables: The profiles that are believed now.   # M x (K, B+1) s
        delays: The delays that are believed now.
    """
    if abs(delays.control - assumed.control) > NOTICEABLE_DELAY * assumed.control:
        return True
    return any(
        bool((np.abs(new - old) > NOTICEABLE * old).any()) for old, new in zip(known, tables, strict=True)
    )
