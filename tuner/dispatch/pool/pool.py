"""Runs one scheduler for sessions that share servers, on the clock of the event loop.

The scheduler decides; the pool owns the time. It reports arrivals, ends of batches and timers to the
scheduler and carries out its commands: it sends a batch, or refuses requests. Between the two it keeps what
the scheduler need not know:

* A request of several items is as many entries in the scheduler's queue, and goes with the first of them that
  is sent. Entries of requests that are sent, answered or withdrawn mean nothing when their turn comes.
* Requests of a session that cannot share a batch, because their shapes, data types or parameters differ, are
  streams: each is a session to the scheduler, with a profile of its own. There are a few streams of each
  session; requests of further kinds go one by one.
* A request that a client gives more time than the SLO is offered again when the scheduler drops it.
* The scheduler knows only servers that are up. When one comes or goes, a new scheduler begins, and what waits
  arrives there again, with the deadlines it has.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tuner.dispatch.backends.connection import Lost
from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.journal import Change, Journal, Segment
from tuner.dispatch.pool.pending import Pending
from tuner.dispatch.pool.profiles import LearnedProfile, prior_table
from tuner.dispatch.pool.tensors import merge, split
from tuner.dispatch.request import Refused, Reply, Status
from tuner.scheduling.catalogue import DISTRIBUTION_POLICIES, build_policy
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.scheduler import Command, Dispatch, Scheduler

__all__ = ["Observer", "Pool", "PoolSession", "Rules"]

UNKNOWN_LARGEST = 64
"""Largest batch of a model of which neither the file nor the server says it."""
MOST_TRIES = 4
"""Batches that a request may be part of before it is given up."""
TUNE_EVERY = 0.25
"""s between two looks at what was learned."""
NOTICEABLE = 0.03
"""Relative change of a profile below which the scheduler keeps the old one."""
MOST_KINDS = 12
"""Kinds of requests of a session that get a stream of their own."""
HOPELESS, FORGET_AFTER = 0.5, 1.0
"""Part of the SLO beyond which a batch may never be sent; s without one after which that is doubted."""
LATENESS = 200
"""Timers whose lateness is remembered."""
AGAIN = 0.1
"""Part of the SLO after which a dropped request is offered again, if its client gives it more time."""
FRONT = 0.5e-3
"""s that an answer takes within the dispatcher, from the server's to the client's connection."""
PATIENCE, LEAST_PATIENCE = 5.0, 0.1
"""How many times as long as expected a batch may take before its server counts as lost, and at least how
long, s."""


class Observer(Protocol):
    """What is told of everything that happens; it must not fail."""

    def arrived(self, session: str) -> None:
        """A request arrived."""

    def ended(self, session: str, status: Status | None, seconds: float) -> None:
        """A request was answered (no status) or refused, some time after its arrival."""

    def executed(self, session: str, server: str, items: int, seconds: float) -> None:
        """A batch was executed."""

    def switched(self, server: str, up: bool) -> None:
        """A server came or went."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a pool schedules."""

    policy: str = "symphony"
    options: Mapping[str, Any] = field(default_factory=dict)
    """By policy; those that are not in it have their defaults."""
    delays: Delays | None = None
    """Of the network, as the policy assumes them; measured if None."""
    quantile: float = 0.95
    """Share of the batches that should not take longer than the learned profile says."""

    @property
    def chosen(self) -> Any:
        """The options of the policy; its defaults if None."""
        return self.options.get(self.policy)


@dataclass(frozen=True, kw_only=True)
class PoolSession:
    """A session, as its pool needs it."""

    name: str
    slo: float
    """s"""
    queue: int
    """Items that may wait."""
    max_batch: int | None = None
    prior: tuple[float, float] | None = None
    """alpha and beta of the profile until it is learned, s."""


@dataclass(frozen=True)
class Stream:
    """Requests of a session that can share batches: a session of the scheduler."""

    session: int
    kind: Hashable
    """None for requests that go one by one."""
    largest: int
    """The largest batch."""


@dataclass(eq=False)
class Lane:
    """An accelerator: one of the instances of a server."""

    server: WatchedServer
    kind: int
    free: float = -math.inf
    """When its last batch ended, s."""


@dataclass
class _Batch:
    """Requests of one kind on their way to a lane."""

    lane: Lane
    stream: Stream
    requests: list[Pending]
    items: int = field(init=False)

    def __post_init__(self) -> None:
        self.items = sum(one.items for one in self.requests)


class Pool:
    """Sessions and the servers that all of them use.

    It lives as long as its event loop runs. :meth:`submit` takes a request, whose future it answers. The
    servers call :meth:`changed`.

    Args:
        sessions: Of the pool.
        rules: How it schedules.
        observer: Is told of everything.
        journal: Records what its schedulers are asked and answer, if given.
    """

    def __init__(
        self,
        sessions: Sequence[PoolSession],
        rules: Rules,
        observer: Observer,
        journal: Journal | None = None,
    ) -> None:
        self.sessions = sessions
        self.rules = rules
        self.servers: list[WatchedServer] = []
        self.scheduler: Scheduler | None = None
        self._observer = observer
        self._journal = journal
        self._segment: Segment | None = None
        self._loop = asyncio.get_running_loop()
        self._lanes: list[Lane] = []
        self._known_lanes: dict[tuple[str, int], Lane] = {}
        self._largest = [0] * len(sessions)
        self._batches = [True] * len(sessions)  # whether the session's model takes several items
        self._kinds: list[list[Hashable]] = [[] for _ in sessions]  # that have streams, the oldest first
        self._streams: list[Stream] = []
        self._places: dict[tuple[int, Hashable], int] = {}  # of the streams
        self._profiles: dict[tuple[str, int, Hashable], LearnedProfile] = {}
        self._waiting: dict[int, Pending] = {}  # the scheduler's entries that mean something
        self._queued = [0] * len(sessions)  # items
        self._next = 0
        self._origin = 0.0
        self._last = 0.0
        self._generation = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tuning: asyncio.TimerHandle | None = None
        self._lateness: deque[float] = deque(maxlen=LATENESS)
        self._executing: set[asyncio.Task[None]] = set()

    @property
    def up(self) -> bool:
        """Whether a server takes batches."""
        return self.scheduler is not None

    def largest(self, session: int) -> int:
        """Return the most items of one request, or of one batch."""
        return self._largest[session]

    def takes_items(self, session: int) -> bool:
        """Return whether the first dimension of a session's inputs is the number of items."""
        return self._batches[session]

    def waiting(self, session: int) -> int:
        """Return how many items of a session wait."""
        return self._queued[session]

    def submit(self, pending: Pending) -> None:
        """Take a request, or refuse it."""
        session = self.sessions[pending.session]
        if not self.up:
            pending.refuse(Status.UNAVAILABLE, self._why_down())
        elif pending.items > self._largest[pending.session]:
            most = self._largest[pending.session]
            pending.refuse(
                Status.INVALID, f"has {pending.items} items, but {session.name} takes {most} at once"
            )
        elif self._queued[pending.session] + pending.items > session.queue:
            pending.refuse(Status.EXHAUSTED, f"the queue of {session.name} is full ({session.queue} items)")
        else:
            pending.future.add_done_callback(lambda _: self._withdraw(pending))
            self._enter(pending)

    def changed(self, server: WatchedServer) -> None:
        """A server came or went: begin again with those that are up."""
        self._observer.switched(server.address, server.up)
        self.restart()

    def set(self, rules: Rules, sessions: Sequence[PoolSession]) -> None:
        """Change the rules and the limits of the sessions; what waits goes on waiting.

        Args:
            rules: The new ones.
            sessions: The same ones, with other limits.
        """
        same_batches = [one.max_batch for one in sessions] == [one.max_batch for one in self.sessions]
        same_policy = rules.policy == self.rules.policy
        self.rules, self.sessions = rules, sessions
        if self.scheduler is not None and same_batches and same_policy and rules.policy == "symphony":
            self._believe(self._tables(), self._delays())
        else:
            self.restart()

    def restart(self) -> None:
        """Begin a new scheduler over the servers that are up; what waits arrives there again."""
        waiting = list(dict.fromkeys(one for one in self._waiting.values() if not one.over))
        self._waiting.clear()
        for one in waiting:
            self._queued[one.session] -= one.items
        self._generation += 1
        self._lanes = [
            self._lane(server, kind, number)
            for kind, server in enumerate(one for one in self.servers if one.up)
            for number in range(server.instances)
        ]
        self.scheduler = None
        if self._lanes:
            self._begin()
        for one in sorted(waiting, key=lambda one: one.due):
            self._retry(one, self._why_down())

    def _lane(self, server: WatchedServer, kind: int, number: int) -> Lane:
        """Return one of a server's lanes, which outlives schedulers: it may still execute a batch."""
        lane = self._known_lanes.setdefault((server.address, number), Lane(server, kind))
        lane.kind = kind
        return lane

    def close(self) -> None:
        """End the timers, and refuse what waits."""
        for timer in (self._timer, self._tuning):
            if timer is not None:
                timer.cancel()
        self.scheduler = None
        for one in list(self._waiting.values()):
            one.refuse(Status.UNAVAILABLE, "the dispatcher is ending")

    # What a scheduler is made of.

    def _begin(self) -> None:
        """Make a scheduler for the present lanes."""
        up = [server for server in self.servers if server.up]
        for index, session in enumerate(self.sessions):
            self._note_limits(index, session, up)
        self._streams = [Stream(index, None, 1) for index in range(len(self.sessions))]
        for index, kinds in enumerate(self._kinds):
            self._streams += [Stream(index, kind, self._largest[index]) for kind in kinds]
        self._places = {(one.session, one.kind): place for place, one in enumerate(self._streams)}
        specs = [
            SessionSpec(
                name=self.sessions[stream.session].name, slo=self.sessions[stream.session].slo, latency=table
            )
            for stream, table in zip(self._streams, self._tables(), strict=True)
        ]
        delays = self._delays()
        spec = ClusterSpec(sessions=specs, kinds=[lane.kind for lane in self._lanes], delays=delays)
        policy = build_policy(self.rules.policy, spec, self.rules.chosen)
        self._origin = self._loop.time()
        self._last = 0.0
        if self._journal is not None:
            self._segment = self._journal.begin(self.rules.policy, self.rules.chosen, spec)
        self.scheduler = Scheduler(policy, self._segment.log if self._segment is not None else None)
        self._wait_to_tune()

    def _note_limits(self, index: int, session: PoolSession, up: Sequence[WatchedServer]) -> None:
        """Find how large the batches of a session may be."""
        given = [limits.max_batch for server in up if (limits := server.limits.get(session.name)) is not None]
        known = [size for size in (*given, session.max_batch) if size is not None]
        self._batches[index] = 0 not in known
        self._largest[index] = max(min(known, default=UNKNOWN_LARGEST), 1)

    def _tables(self) -> list[np.ndarray]:
        """Return what is known of each stream's profile on the servers that are up.   # M x (K, B+1) s."""
        return [
            np.array([self._current(server, stream) for server in self.servers if server.up])
            for stream in self._streams
        ]

    def _profile(self, server: WatchedServer, stream: Stream) -> LearnedProfile:
        """Return the profile of a stream on a server; a new one if its largest batch has changed."""
        place, largest = (server.address, stream.session, stream.kind), stream.largest
        found = self._profiles.get(place)
        if found is None or found.largest != largest:
            slo, prior = self.sessions[stream.session].slo, self.sessions[stream.session].prior
            table = prior_table(largest, slo)
            if prior is not None:
                table[1:] = prior[0] * np.arange(1, largest + 1) + prior[1]
            found = self._profiles[place] = LearnedProfile(table, self.rules.quantile)
        return found

    def _current(self, server: WatchedServer, stream: Stream) -> np.ndarray:
        """Return a stream's profile on a server, the prior if it keeps all batches away for a while.

        Nothing would show that it is wrong.   # (B+1,) s
        """
        profile = self._profile(server, stream)
        table = profile.table()
        late = table[1] > HOPELESS * self.sessions[stream.session].slo
        if late and self._loop.time() - profile.seen > FORGET_AFTER:
            profile.forget()
            return profile.table()
        return table

    def _delays(self) -> Delays:
        """Return the delays of the network and of our own timers, s."""
        if self.rules.delays is not None:
            return self.rules.delays
        trip = max((server.round_trip for server in self.servers if server.up), default=0.0)
        late = float(np.quantile(self._lateness, 0.95)) if self._lateness else 1e-3
        return Delays(control=trip / 2 + late, response=trip / 2 + FRONT)

    def _wait_to_tune(self) -> None:
        if self._tuning is not None:
            self._tuning.cancel()
        self._tuning = self._loop.call_later(TUNE_EVERY, self._tune)

    def _tune(self) -> None:
        """Let the scheduler know what was learned of profiles and delays."""
        self._wait_to_tune()
        if self.scheduler is None:
            return
        cluster, delays = self.scheduler.policy[0], self._delays()
        tables = self._tables()
        changed = abs(delays.control - cluster.board[0].d_control) > 0.2 * cluster.board[0].d_control
        for index, table in enumerate(tables):
            known = cluster.latency[:, index, 1 : table.shape[1]]
            changed |= bool((np.abs(table[:, 1:] - known) > NOTICEABLE * known).any())
        if changed:
            self._believe(tables, delays)

    def _believe(self, tables: Sequence[np.ndarray], delays: Delays) -> None:
        assert self.scheduler is not None
        change = Change(tables=tuple(tables), delays=delays, options=self.rules.chosen)
        if self._segment is not None:
            self._segment.note(change)
        change.apply(self.scheduler.policy)
        self._wait()

    # From events to commands.

    def _now(self) -> float:
        """Return the scheduler's time, which never goes back, s."""
        self._last = max(self._last, self._loop.time() - self._origin)
        return self._last

    def _enter(self, pending: Pending) -> None:
        """Let a request arrive at the scheduler."""
        place = self._stream_of(pending)
        assert self.scheduler is not None
        now = self._now()
        session = self.sessions[pending.session]
        early = max(now + session.slo - (pending.due - self._origin), 0.0)
        self._queued[pending.session] += pending.items
        pending.sent = False
        commands: list[Command] = []
        alone = self.rules.policy in DISTRIBUTION_POLICIES
        for _ in range(1 if alone else pending.items):
            self._waiting[self._next] = pending
            items = pending.items if alone else 1
            commands += self.scheduler.arrive(place, now, self._next, items=items, early=early)
            self._next += 1
        self._carry_out(commands)

    def _stream_of(self, pending: Pending) -> int:
        """Return the place of a request's stream; a new kind gets a new one, as long as there are few."""
        kinds = self._kinds[pending.session]
        if pending.kind in kinds or len(kinds) >= MOST_KINDS or self._largest[pending.session] == 1:
            return self._places.get((pending.session, pending.kind), pending.session)
        kinds.append(pending.kind)
        self.restart()
        return self._places[pending.session, pending.kind]

    def _carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            requests = self._taken(command.numbers)
            if isinstance(command, Dispatch):
                self._launch(self._lanes[command.accelerator], self._streams[command.session], requests)
                continue
            for one in requests:
                self._dropped(one)
        self._wait()

    def _dropped(self, pending: Pending) -> None:
        """Refuse a request that the scheduler dropped, or offer it again if its client waits that long."""
        slo = self.sessions[pending.session].slo
        self._queued[pending.session] -= pending.items
        pending.sent = True  # it counts in no queue now
        reason = f"could not be executed within the SLO of {slo * 1e3:g} ms: other requests came first"
        if pending.due - self._loop.time() > AGAIN * slo:
            self._loop.call_later(AGAIN * slo, self._retry, pending, reason, Status.DEADLINE)
        else:
            pending.refuse(Status.DEADLINE, reason)

    def _taken(self, numbers: Iterable[int]) -> list[Pending]:
        """Return the requests of some entries of the scheduler, each once, that still wait."""
        found = [one for number in numbers if (one := self._waiting.pop(number, None)) is not None]
        return [one for one in dict.fromkeys(found) if not (one.sent or one.over)]

    def _wait(self) -> None:
        """Set the timer for what the scheduler wants next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.scheduler is not None and (at := self.scheduler.wake_at) < math.inf:
            self._timer = self._loop.call_at(self._origin + at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.scheduler is None:
            return
        wanted = self.scheduler.wake_at
        self._lateness.append(max(self._now() - wanted, 0.0))
        self._last = max(self._last, wanted)  # the loop's timers may come a rounding early
        self._carry_out(self.scheduler.wake(self._last))

    def _finished(self, lane: Lane, generation: int) -> None:
        """A batch of a lane has ended."""
        lane.free = self._loop.time()
        if generation == self._generation and self.scheduler is not None:
            self._carry_out(self.scheduler.finish(self._lanes.index(lane), self._now()))

    def _withdraw(self, pending: Pending) -> None:
        """A request was answered, refused or withdrawn; its entries mean nothing any more."""
        if not pending.sent:
            self._queued[pending.session] -= pending.items

    def _retry(self, pending: Pending, reason: str, status: Status = Status.UNAVAILABLE) -> None:
        """Let a request arrive again if there is time for it, else refuse it."""
        pending.sent = True  # it counts in no queue now
        quickest = min(
            (self._quickest(server, pending) for server in self.servers if server.up), default=math.inf
        )
        if pending.over:
            return
        if self.up and pending.tries < MOST_TRIES and self._loop.time() + quickest < pending.due:
            self._enter(pending)
        else:
            pending.refuse(status, reason)

    def _quickest(self, server: WatchedServer, pending: Pending) -> float:
        place = self._places.get((pending.session, pending.kind), pending.session)
        stream = self._streams[place]
        table = self._profile(server, stream).table()
        return float(table[min(pending.items, stream.largest)]) + server.round_trip

    def _why_down(self) -> str:
        reasons = "; ".join(dict.fromkeys(server.reason for server in self.servers if not server.up))
        return f"no backend is up: {reasons}"

    # Batches.

    def _launch(self, lane: Lane, stream: Stream, requests: list[Pending]) -> None:
        """Send requests to a lane."""
        for one in requests:
            one.sent = True
            one.tries += 1
            self._queued[one.session] -= one.items
        batches = [_Batch(lane, stream, part) for part in _parts(requests, stream.largest)]
        task = self._loop.create_task(self._execute(lane, batches, self._generation))
        self._executing.add(task)
        task.add_done_callback(self._executing.discard)

    async def _execute(self, lane: Lane, batches: Sequence[_Batch], generation: int) -> None:
        for batch in batches:
            await self._send(batch)
        self._finished(lane, generation)

    async def _send(self, batch: _Batch) -> None:
        """Send one batch; answer its requests, or let them go elsewhere."""
        server, session = batch.lane.server, self.sessions[batch.stream.session]
        requests = [one for one in batch.requests if not one.over]
        if not requests:
            return
        if not server.up:
            self._elsewhere(requests, server.reason)
            return
        counts = [one.items for one in requests]
        like, inputs = requests[0].request, merge([one.request for one in requests])
        began = self._loop.time()
        call = self._loop.create_task(server.connection.infer(server.models[session.name], like, inputs))
        try:
            reply = await asyncio.wait_for(asyncio.shield(call), self._patience(batch))
            outputs = split(reply.outputs, counts) if self._batches[batch.stream.session] else [reply.outputs]
        except TimeoutError:
            server.give_up(call)
            server.lost(f"{server.address} did not answer a batch in time")
            self._elsewhere(requests, server.reason)
        except Lost as error:
            server.lost(str(error))
            self._elsewhere(requests, str(error))
        except Refused as refused:
            await self._one_by_one(batch, requests, refused)
        else:
            for one, part in zip(requests, outputs, strict=True):
                one.answer(Reply(part, reply.version))
            self._learn(batch, sum(counts), began)

    def _patience(self, batch: _Batch) -> float:
        """Return how long to wait for a batch before its server counts as lost, s."""
        expected = self._profile(batch.lane.server, batch.stream).table()
        longest = float(expected[min(batch.items, batch.stream.largest)])
        return max(PATIENCE * longest, self.sessions[batch.stream.session].slo, LEAST_PATIENCE)

    def _learn(self, batch: _Batch, items: int, began: float) -> None:
        """Learn from a batch that has just ended how long its server worked on it."""
        now, server = self._loop.time(), batch.lane.server
        seconds = max(now - max(began, batch.lane.free) - server.round_trip, 1e-6)
        self._profile(server, batch.stream).observe(items, seconds, now)
        batch.lane.free = now
        self._observer.executed(self.sessions[batch.stream.session].name, server.address, items, seconds)

    def _elsewhere(self, requests: Iterable[Pending], reason: str) -> None:
        for one in requests:
            self._retry(one, reason)

    async def _one_by_one(self, batch: _Batch, requests: Sequence[Pending], refused: Refused) -> None:
        """Find out which request a server refused a batch for: no other one should suffer from it."""
        if len(requests) == 1:
            requests[0].refuse(refused.status, refused.reason)
            return
        for one in requests:
            await self._send(_Batch(batch.lane, batch.stream, [one]))


def _parts(requests: Sequence[Pending], largest: int) -> list[list[Pending]]:
    """Return requests in batches of at most so many items; a request is never divided."""
    parts: list[list[Pending]] = [[]]
    items = 0
    for one in requests:
        if parts[-1] and items + one.items > largest:
            parts.append([])
            items = 0
        parts[-1].append(one)
        items += one.items
    return [part for part in parts if part]
