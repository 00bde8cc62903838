"""Runs one scheduler for sessions that share servers, on the clock of the event loop.

The scheduler decides; the flow carries its commands out. The pool sees to what it is made of:

* Requests of a session that cannot share a batch, because their shapes, data types or parameters differ, are
  streams: each is a session to the scheduler, with a profile of its own. A kind gets its stream once a server
  has answered a request of it. There are a few of each session, and the one unused for longest gives way to a
  new one. Requests of all other kinds go one by one.
* The scheduler knows only servers that are up. When one comes or goes, a new scheduler begins, and what waits
  arrives there again, with the deadlines it has.
* What is learned meanwhile of profiles and delays it is told a few times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from tuner.dispatch.backends.outlier import Came
from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.journal import Change, Journal, Segment
from tuner.dispatch.pool.assumptions import Assumptions
from tuner.dispatch.pool.beliefs import Beliefs
from tuner.dispatch.pool.flow import Flow
from tuner.dispatch.pool.observer import Observer
from tuner.dispatch.pool.pending import Pending
from tuner.dispatch.pool.queue import SessionQueue
from tuner.dispatch.pool.rules import PoolSession, Rules
from tuner.dispatch.pool.sending.accelerators import Accelerators
from tuner.dispatch.pool.sending.granting import GrantSender
from tuner.dispatch.pool.sending.lanes import Batch, Lanes
from tuner.dispatch.pool.sending.proxy import ProxySender
from tuner.dispatch.request import Status
from tuner.scheduling.catalogue import build_policy
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.scheduler import Scheduler

__all__ = ["Pool"]

TUNE_EVERY = 0.25
"""s between two comparisons of what was learned with what the scheduler assumes."""
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
        self.hand_over: Callable[[Pending], bool] | None = None
        """Set once other pools have its sessions: lets a request go on there, and returns whether it does."""
        self._queues = {one.name: SessionQueue(one, beliefs.kinds(one.name)) for one in sessions}
        self._observer = observer
        self._beliefs = beliefs
        self._journal = journal
        self._segment: Segment | None = None
        self._loop = asyncio.get_running_loop()
        make = GrantSender if rules.grants else ProxySender
        sender = make(beliefs, observer, self._retry_each, self._note_answered, self._compare)
        self._lanes = Lanes(sender.send, self._lane_free, accelerators)
        self._flow = Flow(self._queues, beliefs, self._lanes, self._goes_on_elsewhere, self.restart)
        self._tuning: asyncio.TimerHandle | None = None
        self._closed = False
        self._counted: set[WatchedServer] = set()  # those that the observer knows to be up

    @property
    def sessions(self) -> Sequence[PoolSession]:
        """Its sessions."""
        return [queue.session for queue in self._queues.values()]

    @property
    def scheduler(self) -> Scheduler | None:
        """Its present scheduler; None while no server is up."""
        return self._flow.scheduler

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

    def overdue(self, session: str) -> int:
        """Return how many items of a session missed the SLO, and wait for a server with nothing to do."""
        return self._flow.offers.items(session)

    def submit(self, pending: Pending, *, waited: bool = False) -> None:
        """Take a request, or refuse it.

        Args:
            pending: The request.
            waited: Whether another pool had it: then the limits, which may be others here, do not count.
        """
        queue = self._queues[pending.session]
        if not self.up:
            pending.refuse(Status.UNAVAILABLE, self.why_down())
        elif pending.items > queue.largest and not waited:
            problem = f"has {pending.items} items, but {pending.session} takes {queue.largest} at once"
            pending.refuse(Status.INVALID, problem)
        elif pending.items > queue.session.queue and not waited:
            problem = (
                f"has {pending.items} items, but the queue of {pending.session} holds {queue.session.queue}"
            )
            pending.refuse(Status.INVALID, problem)
        elif queue.items + pending.items > queue.session.queue and not waited:
            problem = f"the queue of {pending.session} is full ({queue.session.queue} items)"
            pending.refuse(Status.EXHAUSTED, problem)
        else:
            pending.future.add_done_callback(lambda _: self._flow.withdraw(pending))
            if pending.dropped:  # by another pool
                self._flow.put_off(pending, waited=waited)
            else:
                self._flow.submit(pending, again=waited)

    def changed(self, server: WatchedServer) -> None:
        """A server came or went, or has other limits: begin again with those that are up."""
        self.changes += 1
        was_up = self.up
        if not server.up:
            self._count(server)
        self.restart()
        self._count(server)  # one that is up counts once a scheduler has begun with it
        if self.up and not was_up:
            self._observer.returned([*self._queues])
        if not self.up:
            self._readmit(always=True)

    def _count(self, server: WatchedServer) -> None:
        """Tell that a server came or went: once, also where a scheduler that cannot begin is tried again."""
        if server.up != (server in self._counted):
            (self._counted.add if server.up else self._counted.discard)(server)
            self._observer.switched(server.address, server.up)

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
        if self.scheduler is not None and same_batches and same_policy:
            self._flow.told.renew_sessions(self.sessions)
            self._flow.told.update(rules.delays, self._loop.time(), always=True)
            self._believe()
        else:
            self.restart()

    def restart(self) -> None:
        """Begin a new scheduler over the servers that are up; what waits arrives there again.

        If it cannot begin, that is tried again when it would be told what was learned; what waits stays.
        """
        self._flow.stop()
        self._wait_to_tune()
        up = self._servers_up()
        self._lanes.renew(up)
        if up:
            self._begin(up)
            self._flow.retry_waiting(TOO_LATE, Status.DEADLINE)
        else:
            self._flow.retry_waiting(self.why_down(), Status.UNAVAILABLE)

    @property
    def busy(self) -> bool:
        """Whether a batch is on its way."""
        return self._lanes.busy

    def release(self, sessions: Collection[str]) -> list[Pending]:
        """Remove and return the waiting requests of some sessions, which go on in another pool."""
        return self._flow.entries.take_of(sessions) + self._flow.offers.take_of(sessions)

    def close(self) -> None:
        """End the timers, and refuse what waits; a server that comes or goes later changes nothing."""
        self._closed = True
        if self._tuning is not None:
            self._tuning.cancel()
        self._flow.close()

    def _servers_up(self) -> list[WatchedServer]:
        return [] if self._closed else [server for server in self.servers if server.up]

    def _begin(self, up: Sequence[WatchedServer]) -> None:
        """Make a scheduler for the present lanes."""
        for queue in self._queues.values():
            queue.update_limits(up)
        sized = self.rules.distributes
        streams = [stream for queue in self._queues.values() for stream in queue.streams(sized)]
        began = self._loop.time()
        told = Assumptions(self._beliefs, up, streams, self.rules.delays, began)
        busy = {place: ends - began for place, ends in self._lanes.busy_until.items()}
        numbers = self._lanes.server_numbers
        spec = ClusterSpec(sessions=told.specs, kinds=numbers, delays=told.delays, busy=busy)
        policy = build_policy(self.rules.policy, spec, self.rules.chosen)
        if self._journal is not None:
            self._segment = self._journal.begin(self.rules.policy, self.rules.chosen, spec)
        scheduler = Scheduler(policy, self._segment.log if self._segment is not None else None)
        self._flow.begin(scheduler, told, began, sized=sized)

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
        if self._flow.told.update(self.rules.delays, self._loop.time()):
            self._believe()

    def _believe(self) -> None:
        """Let the policy go on with the present assumptions and options."""
        assert self.scheduler is not None
        told = self._flow.told
        change = Change(tables=tuple(told.tables), delays=told.delays, options=self.rules.chosen)
        if self._segment is not None:
            self._segment.note(change)
        change.apply(self.rules.policy, self.scheduler.policy)
        self._flow.set_timer()

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

    # What the flow hears of its lanes, and asks.

    def _retry_each(self, requests: Iterable[Pending], reason: str) -> None:
        """Let requests of a server that is lost arrive again, or refuse them for a reason."""
        for one in requests:
            self._flow.retry(one, reason)

    async def _compare(self, batch: Batch, requests: Sequence[Pending]) -> Came:
        came = await self._lanes.compare(batch, requests)
        if came is Came.NOBODY:
            self._readmit(always=False)  # the requests may be to blame, and not the servers
        return came

    def _readmit(self, *, always: bool) -> None:
        """Bring back servers that were outliers, because no other is better now; see their `readmit`."""
        for server in self.servers:
            server.readmit(always=always)

    def _lane_free(self, place: int, executed: bool) -> None:
        self._flow.lane_free(place, executed)

    def _goes_on_elsewhere(self, pending: Pending) -> bool:
        return self.hand_over is not None and self.hand_over(pending)
