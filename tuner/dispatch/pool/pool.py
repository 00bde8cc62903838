"""Runs one scheduler for sessions that share servers, on the clock of the event loop.

The scheduler decides; the pool owns the time. It reports arrivals, ends of batches and timers to the
scheduler and carries out its commands: it sends a batch, or refuses requests. It also takes care of what the
scheduler need not know:

* A request has one entry in the scheduler's queue for each of its items, and is sent with the first of them.
  The other entries, and those of requests that were answered or withdrawn, are ignored when their turn comes.
  Under a policy that distributes requests by their sizes it has one entry with its size.
* Requests of a session that cannot share a batch, because their shapes, data types or parameters differ, are
  streams: each is a session to the scheduler, with a profile of its own. A kind gets its stream once a server
  has answered a request of it. There are a few of each session, and the one unused for longest gives way to a
  new one. Requests of all other kinds go one by one.
* A request that a client gives more time than the SLO is offered again when the scheduler drops it.
* A request that a client gives less time is not kept away by a profile that is only assumed: executing it is
  what shows how long batches take.
* The scheduler knows only servers that are up. When one comes or goes, a new scheduler begins, and what waits
  arrives there again, with the deadlines it has.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.journal import Change, Journal, Segment
from tuner.dispatch.pool.accelerators import Accelerators
from tuner.dispatch.pool.beliefs import Beliefs, noticeable
from tuner.dispatch.pool.granting import GrantSender
from tuner.dispatch.pool.lanes import Lanes
from tuner.dispatch.pool.observer import Observer
from tuner.dispatch.pool.offers import Offers
from tuner.dispatch.pool.pending import Pending, still_waiting, traces_of
from tuner.dispatch.pool.profiles import DOUBTED_AFTER
from tuner.dispatch.pool.proxy import ProxySender
from tuner.dispatch.pool.queue import SessionQueue
from tuner.dispatch.pool.rules import PoolSession, Rules
from tuner.dispatch.pool.stream import Stream
from tuner.dispatch.request import Status
from tuner.dispatch.tracing import note_planned
from tuner.scheduling.catalogue import build_policy
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.scheduler import Command, Dispatch, Scheduler

__all__ = ["Pool"]

MOST_TRIES = 4
"""Batches that a request may be part of before it is given up."""
TUNE_EVERY = 0.25
"""s between two comparisons of what was learned with what the scheduler assumes."""
EARLY = 1e-6
"""s by which the event loop may call a timer too early: the resolution of its clock, and rounding."""
OFFER_AGAIN = 0.1
"""Part of the SLO after which a dropped request may be offered again, if its client gives it more time."""
TOO_LATE = "could not be executed in time: its deadline is too near for every backend"
"""Why a request is refused that waited when a scheduler began."""
SCHEDULER_FAILED = "the dispatcher could not begin to schedule, and tries again; its log says why"
"""Why a request is refused although servers are up."""


class Pool:
    """Sessions and the servers that all of them use.

    It lives as long as its event loop runs. :meth:`submit` takes a request, whose future it answers. The
    servers call :meth:`changed`.

    Args:
        sessions: Of the pool.
        rules: How it schedules.
        observer: Hears of everything.
        beliefs: Of the servers; it learns.
        accelerators: Of the servers; other pools may use them, too.
        journal: Records what its schedulers are asked and answer, if given.
    """

    def __init__(
        self,
        sessions: Sequence[PoolSession],
        rules: Rules,
        observer: Observer,
        beliefs: Beliefs,
        accelerators: Accelerators,
        *,
        journal: Journal | None = None,
    ) -> None:
        self.rules = rules
        self.changes = 0
        """How often a server came or went, or got other limits."""
        self.servers: list[WatchedServer] = []
        self.scheduler: Scheduler | None = None
        self.hand_over: Callable[[Pending], bool] | None = None
        """Set once other pools have its sessions: lets a request go on there, and returns whether it does."""
        self._queues = {one.name: SessionQueue(one, beliefs.kinds(one.name)) for one in sessions}
        self._offers = {one.name: Offers(self._offer_again) for one in sessions}
        self._observer = observer
        self._beliefs = beliefs
        self._journal = journal
        self._segment: Segment | None = None
        self._loop = asyncio.get_running_loop()
        make = GrantSender if rules.grants else ProxySender
        sender = make(beliefs, observer, self._retry_all, self._note_answered)
        self._lanes = Lanes(sender.send, self._lane_free, accelerators)
        self._streams: list[Stream] = []
        self._assumed: tuple[Sequence[np.ndarray], Delays] = [], Delays()  # by the scheduler
        self._unsure: list[frozenset[int]] = []  # by stream, servers by their numbers; see `Beliefs.unsure`
        self._places: dict[tuple[str, Hashable], int] = {}  # session and kind -> its stream
        self._waiting: dict[int, Pending] = {}  # by the number of a scheduler's entry; others are ignored
        self._next = 0
        self._origin = 0.0
        self._latest_time = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_was_ahead = False
        """Whether the timer was set before its time: only then it tells how late timers are."""
        self._tuning: asyncio.TimerHandle | None = None
        self._tried_at = 0.0
        """When the scheduler began, or the last batch that was executed ended, s."""
        self._closed = False

    @property
    def sessions(self) -> Sequence[PoolSession]:
        """Its sessions."""
        return [queue.session for queue in self._queues.values()]

    @property
    def up(self) -> bool:
        """Whether a server takes batches."""
        return self.scheduler is not None

    def why_down(self) -> str:
        """Return why no server takes batches."""
        reasons = "; ".join(dict.fromkeys(server.reason for server in self.servers if not server.up))
        return f"no backend is up: {reasons or SCHEDULER_FAILED}"

    def session(self, name: str) -> PoolSession:
        """Return a session."""
        return self._queues[name].session

    def largest(self, session: str) -> int:
        """Return the most items of one request, or of one batch."""
        return self._queues[session].largest

    def takes_items(self, session: str) -> bool:
        """Return whether the first dimension of a session's inputs is the number of items."""
        return self._queues[session].takes_items

    def waiting(self, session: str) -> int:
        """Return how many items of a session wait."""
        return self._queues[session].items

    def submit(self, pending: Pending) -> None:
        """Take a request, or refuse it."""
        queue = self._queues[pending.session]
        if not self.up:
            pending.refuse(Status.UNAVAILABLE, self.why_down())
        elif pending.items > queue.largest:
            problem = f"has {pending.items} items, but {pending.session} takes {queue.largest} at once"
            pending.refuse(Status.INVALID, problem)
        elif pending.items > queue.session.queue:
            problem = (
                f"has {pending.items} items, but the queue of {pending.session} holds {queue.session.queue}"
            )
            pending.refuse(Status.INVALID, problem)
        elif queue.items + pending.items > queue.session.queue:
            problem = f"the queue of {pending.session} is full ({queue.session.queue} items)"
            pending.refuse(Status.EXHAUSTED, problem)
        else:
            pending.future.add_done_callback(lambda _: self._withdraw(pending))
            self._enqueue(pending)

    def changed(self, server: WatchedServer) -> None:
        """A server came or went, or has other limits: begin again with those that are up."""
        self.changes += 1
        was_up = self.up
        self._observer.switched(server.address, server.up)
        self.restart()
        if self.up and not was_up:
            self._observer.returned([*self._queues])

    def reconfigure(self, rules: Rules, sessions: Sequence[PoolSession]) -> None:
        """Change the rules and the limits of the sessions; what waits goes on waiting.

        Where only delays, queues and profiles change, or Symphony's options, the scheduler goes on, with what
        its policy learned by itself.

        Args:
            rules: The new ones.
            sessions: The same ones, with other limits or SLOs.
        """
        known = [self.session(one.name) for one in sessions]
        same_batches = [(one.max_batch, one.slo) for one in sessions] == [(o.max_batch, o.slo) for o in known]
        same_policy = rules.policy == self.rules.policy and (
            rules.policy == "symphony" or rules.chosen == self.rules.chosen
        )
        self.rules = rules
        for one in sessions:
            self._queues[one.name].session = one
        self._streams = [replace(one, session=self.session(one.session.name)) for one in self._streams]
        if self.scheduler is not None and same_batches and same_policy:
            self._believe(self._tables(), self._delays())
        else:
            self.restart()

    def restart(self) -> None:
        """Begin a new scheduler over the servers that are up; what waits arrives there again.

        If it cannot begin, that is tried again when it would be told what was learned; what waits stays.
        """
        self.scheduler = None
        self._wait_to_tune()
        up = self._servers_up()
        self._lanes.renew(up)
        if up:
            self._begin(up)
        waiting = still_waiting(self._waiting.values())
        self._waiting.clear()
        for one in waiting:
            self._queues[one.session].items -= one.items
            one.queued = False
        reason, status = (TOO_LATE, Status.DEADLINE) if up else (self.why_down(), Status.UNAVAILABLE)
        for one in sorted(waiting, key=lambda one: one.due):
            self._retry(one, reason, status)
        self._set_timer()  # if nothing waits, the timer is still the old scheduler's

    @property
    def busy(self) -> bool:
        """Whether a batch is on its way."""
        return self._lanes.busy

    def release(self, sessions: Container[str]) -> list[Pending]:
        """Remove and return the waiting requests of some sessions, which go on in another pool."""
        gone = {number: one for number, one in self._waiting.items() if one.session in sessions}
        for number in gone:
            del self._waiting[number]
        return still_waiting(gone.values())

    def close(self) -> None:
        """End the timers, and refuse what waits; a server that comes or goes later changes nothing."""
        self._closed = True
        for timer in (self._timer, self._tuning):
            if timer is not None:
                timer.cancel()
        for offers in self._offers.values():
            offers.close()
        self.scheduler = None
        for one in list(self._waiting.values()):
            one.refuse(Status.UNAVAILABLE, "the dispatcher is ending")

    def _servers_up(self) -> list[WatchedServer]:
        return [] if self._closed else [server for server in self.servers if server.up]

    # What a scheduler is made of.

    def _begin(self, up: Sequence[WatchedServer]) -> None:
        """Make a scheduler for the present lanes."""
        for queue in self._queues.values():
            queue.update_limits(up)
        sized = self.rules.distributes
        self._streams = [stream for queue in self._queues.values() for stream in queue.streams(sized)]
        self._places = {(one.session.name, one.kind): place for place, one in enumerate(self._streams)}
        self._assumed = tables, delays = self._tables(), self._delays()
        self._note_unsure()
        specs = [
            SessionSpec(name=stream.session.name, slo=stream.session.slo, latency=table)
            for stream, table in zip(self._streams, tables, strict=True)
        ]
        self._origin, self._latest_time = self._loop.time(), 0.0
        self._tried_at = self._origin
        busy = {place: ends - self._origin for place, ends in self._lanes.busy_until.items()}
        spec = ClusterSpec(sessions=specs, kinds=self._lanes.server_numbers, delays=delays, busy=busy)
        policy = build_policy(self.rules.policy, spec, self.rules.chosen)
        if self._journal is not None:
            self._segment = self._journal.begin(self.rules.policy, self.rules.chosen, spec)
        self.scheduler = Scheduler(policy, self._segment.log if self._segment is not None else None)

    def _tables(self) -> list[np.ndarray]:
        """Return what is believed of each stream on the servers that are up.   # M x (K, B+1) s."""
        return self._beliefs.tables(self._servers_up(), self._streams, self._loop.time())

    def _note_unsure(self) -> None:
        """Note of which streams it is only assumed how long they take, and where."""
        up, now = self._servers_up(), self._loop.time()
        self._unsure = [self._beliefs.unsure(up, stream, now) for stream in self._streams]

    def _delays(self) -> Delays:
        """Return the delays of the network, as they are given or measured."""
        return self.rules.delays or self._beliefs.delays(self._servers_up(), self._loop.time())

    def _wait_to_tune(self) -> None:
        if self._tuning is not None:
            self._tuning.cancel()
        if not self._closed:
            self._tuning = self._loop.call_later(TUNE_EVERY, self._tune)

    def _tune(self) -> None:
        """Tell the scheduler what was learned of profiles and delays, if it differs noticeably."""
        self._wait_to_tune()
        if self.scheduler is None:
            if self._servers_up():
                self.restart()
            return
        self._note_unsure()
        tables, delays = self._tables(), self._delays()
        if noticeable(*self._assumed, tables, delays):
            self._believe(tables, delays)

    def _believe(self, tables: Sequence[np.ndarray], delays: Delays) -> None:
        assert self.scheduler is not None
        change = Change(tables=tuple(tables), delays=delays, options=self.rules.chosen)
        if self._segment is not None:
            self._segment.note(change)
        change.apply(self.rules.policy, self.scheduler.policy)
        self._assumed = tables, delays
        self._set_timer()

    # From events to commands.

    def _now(self) -> float:
        """Return the scheduler's time, which never goes back, s."""
        self._latest_time = max(self._latest_time, self._loop.time() - self._origin)
        return self._latest_time

    def _enqueue(self, pending: Pending) -> None:
        """Let a request arrive at the scheduler, with an entry for each of its items, or one of its size."""
        place = self._stream_of(pending)
        assert self.scheduler is not None
        now = self._now()
        queue = self._queues[pending.session]
        queue.items += pending.items
        pending.queued, pending.dropped = True, ""
        if pending.trace is not None:
            pending.trace.waits(self._loop.time())
        commands: list[Command] = []
        entries, items = pending.items, 1
        if self.rules.distributes:
            # It may have more than the limit, if that was lowered while it waited: of those no time is known.
            entries, items = 1, min(pending.items, self._streams[place].largest)
        due = pending.due - self._origin - now
        left = self._time_left(place, items, due)
        pending.trial = left > due
        early = max(queue.session.slo - left, 0.0)
        for _ in range(entries):
            self._waiting[self._next] = pending
            commands += self.scheduler.arrive(place, now, self._next, items=items, early=early)
            self._next += 1
        self._carry_out(commands)

    def _time_left(self, place: int, items: int, left: float) -> float:
        """Return how much time the scheduler is told that a request has, s.

        It is more than the client gives where a mere assumption would rule the request out: then it may begin
        within half of its own time, on the quickest server that is idle, for a policy that defers batches
        waits as long as it is told. Not so if an idle server is known to be quick enough.

        Args:
            place: Of its stream.
            items: Of the smallest batch that it may be in.
            left: What the client gives, s.
        """
        unsure, tables, way = self._unsure[place], self._assumed[0], self._way(items)
        if not unsure or left < way:
            return left
        times, idle = tables[place][:, items], self._lanes.idle_servers()
        if any(times[number] <= left - way for number in idle - unsure):
            return left
        assumed = [times[number] for number in idle & unsure]
        longest = min(assumed) if assumed else max(times[number] for number in unsure)
        return max(left, left / 2 + way + float(longest))

    def _stream_of(self, pending: Pending) -> int:
        """Return the place of the stream that a request goes with, and note that it is in use."""
        kind = self._queues[pending.session].use(pending.kind, self._loop.time())
        return self._places[pending.session, kind]

    def _place_of(self, session: str, kind: Hashable) -> int:
        """Return the place of the stream that requests of a kind go with."""
        return self._places.get((session, kind), self._places[session, None])

    def _note_answered(self, requests: Iterable[Pending]) -> None:
        """Give the kinds of requests that a server has answered one by one a stream each."""
        for one in requests:
            if self._queues[one.session].lacks_stream(one.kind):
                # Not before the batch has ended: the new scheduler would take its lane for busy.
                self._loop.call_later(0, self._add_stream, self._queues[one.session], one.kind)

    def _add_stream(self, queue: SessionQueue, kind: Hashable) -> None:
        """Give a kind a stream of its own; it may take that of another kind."""
        if self.up and queue.add(kind, self._loop.time()):
            self._beliefs.keep_only(queue.session.name, [*queue.kinds])
            self.restart()

    def _carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            requests = self._take_entries(command.numbers)
            if isinstance(command, Dispatch):
                self._launch(command, requests)
                continue
            for one in requests:
                self._handle_drop(one)
            if requests and not self.busy and self._loop.time() > self._tried_at + DOUBTED_AFTER:
                self._tried_at = self._loop.time()
                self._loop.call_later(0, self._forget_what_policy_learned)
        self._set_timer()

    def _forget_what_policy_learned(self) -> None:
        """Begin again: what a policy has learned by itself may keep all requests away, and be wrong."""
        if self.up:
            self.restart()

    def _handle_drop(self, pending: Pending) -> None:
        """Refuse a request that the scheduler has dropped, or offer it again later if its client waits."""
        queue = self._queues[pending.session]
        slo = queue.session.slo
        queue.items -= pending.items
        pending.queued = False
        reason = self._why_dropped(pending)
        again = self._loop.time() + OFFER_AGAIN * slo
        if pending.due > again:
            pending.dropped = reason
            self._offers[pending.session].add(pending, again)
        else:
            pending.refuse(Status.DEADLINE, reason)

    def _why_dropped(self, pending: Pending) -> str:
        """Return why a policy drops a request: for others, or because no time would have been enough."""
        slo, given = self.session(pending.session).slo, pending.due - pending.arrived
        own = given < slo - EARLY
        place = self._place_of(pending.session, pending.kind)
        items = min(pending.items, self._streams[place].largest)
        shortest = float(self._assumed[0][place][:, items].min()) + self._way(items)
        others = self._lanes.occupied or any(queue.items for queue in self._queues.values())
        if others and shortest <= min(slo, given):
            why = "other requests came first"
        else:
            why = "no backend is expected to be quick enough"
        limit = f"the {given * 1e3:.4g} ms that its client gives" if own else f"the SLO of {slo * 1e3:g} ms"
        return f"could not be executed within {limit}: {why}"

    def _way(self, items: int) -> float:
        """Return what the scheduler assumes that a batch and its answer are under way, s."""
        delays = self._assumed[1]
        return delays.control + delays.data * items + delays.response

    def _offer_again(self, pending: Pending) -> None:
        self._retry(pending, pending.dropped, Status.DEADLINE)

    def _take_entries(self, numbers: Iterable[int]) -> list[Pending]:
        """Take some of the scheduler's entries; return their requests that still wait, each once."""
        found = [one for number in numbers if (one := self._waiting.pop(number, None)) is not None]
        return still_waiting(found)

    def _set_timer(self) -> None:
        """Set the timer to the time at which the scheduler wants to be woken."""
        at = math.inf if self.scheduler is None else self._origin + self.scheduler.wake_at
        if self._timer is not None:
            if self._timer.when() == at:  # as after most arrivals; setting it costs a few us
                return
            self._timer.cancel()
            self._timer = None
        if at < math.inf:
            self._timer = self._loop.call_at(at, self._wake)
            self._timer_was_ahead = at > self._loop.time()

    def _wake(self) -> None:
        self._timer = None
        if self.scheduler is None:
            return
        wanted, now = self.scheduler.wake_at, self._now()
        if wanted > now + EARLY:  # too early: time must not jump ahead to what it wants
            self._set_timer()
            return
        if self._timer_was_ahead:
            self._beliefs.timer_was_late(now - wanted, self._loop.time())
        self._latest_time = max(now, wanted)
        self._carry_out(self.scheduler.wake(self._latest_time))

    def _launch(self, command: Dispatch, requests: Sequence[Pending]) -> None:
        """Send requests to a lane."""
        if traces := traces_of(requests):
            note_planned(traces, self._loop.time(), command.accelerator)
        stream = self._streams[command.session]
        queue = self._queues[stream.session.name]
        for one in requests:
            one.queued = False
            one.tries += 1
            queue.items -= one.items
        self._lanes.launch(command.accelerator, stream, requests, self._origin + command.finish)

    def _lane_free(self, place: int, executed: bool) -> None:
        """Tell the scheduler that a lane has ended a batch, or all it had when the scheduler began."""
        if executed:
            self._tried_at = self._loop.time()
        if self.scheduler is not None:
            self._carry_out(self.scheduler.finish(place, self._now(), void=not executed))

    def _withdraw(self, pending: Pending) -> None:
        """Do not count a request any more that was answered, refused or withdrawn while it waited."""
        if pending.queued:
            self._queues[pending.session].items -= pending.items

    def _retry_all(self, requests: Iterable[Pending], reason: str) -> None:
        for one in requests:
            self._retry(one, reason)

    def _retry(self, pending: Pending, reason: str, status: Status = Status.UNAVAILABLE) -> None:
        """Let a request arrive again if there is time for it, else refuse it."""
        pending.queued = False
        if pending.over:
            return
        again = pending.tries < MOST_TRIES
        if again and self.hand_over is not None and self.hand_over(pending):
            return
        in_time = self._loop.time() + self._quickest(pending) < pending.due
        if self.up and again and in_time:
            self._enqueue(pending)
        else:
            pending.refuse(status, reason)

    def _quickest(self, pending: Pending) -> float:
        """Return the shortest time from now in which a request could be answered, s."""
        place = self._place_of(pending.session, pending.kind)
        up, now = self._servers_up(), self._loop.time()
        return self._beliefs.quickest(up, self._streams[place], pending.items, now)
