"""The way of requests to a scheduler, and of its commands to the lanes.

A flow owns the time of its scheduler. It reports arrivals, ends of batches and timers to it and carries out
its commands: it sends a batch, or refuses requests. It also takes care of what the scheduler need not know:

* A request has one entry in the scheduler's queue for each of its items, and is sent with the first of them.
  The other entries, and those of requests that were answered or withdrawn, are ignored when their turn comes.
  Under a policy that distributes requests by their sizes it has one entry with its size.
* A request that a client gives more time than the SLO, and that the scheduler has dropped, is offered again
  once a server has nothing to do.
* A request that a client gives less time is not kept away by a profile that is only assumed: executing it is
  what shows how long batches take.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from tuner.dispatch.pool.assumptions import Assumptions
from tuner.dispatch.pool.beliefs import Beliefs
from tuner.dispatch.pool.clock import SchedulerClock
from tuner.dispatch.pool.entries import Entries
from tuner.dispatch.pool.offers import Offers, why_dropped
from tuner.dispatch.pool.pending import Pending, traces_of
from tuner.dispatch.pool.profiles import DOUBTED_AFTER
from tuner.dispatch.pool.queue import SessionQueue
from tuner.dispatch.pool.sending.lanes import Lanes
from tuner.dispatch.request import Status
from tuner.dispatch.tracing import note_planned
from tuner.scheduling.scheduler import Command, Dispatch, Scheduler

__all__ = ["Flow"]

MOST_TRIES = 4
"""Batches that a request may be part of before it is given up."""
SOON = 2.0
"""How much time a policy is told that a request has when it is offered again: so many brief batches."""
OFFER_AGAIN = 0.1
"""Part of the SLO after which a dropped request may be offered again, if its client gives it more time."""


class Flow:
    """What goes in and out of one scheduler after the other; :meth:`begin` is called with each.

    Args:
        queues: The sessions.
        beliefs: Learn how late timers are.
        lanes: Where batches go.
        hand_over: Lets a request go on in another pool, and returns whether it does.
        begin_again: Has a new scheduler begin.
    """

    def __init__(
        self,
        queues: Mapping[str, SessionQueue],
        beliefs: Beliefs,
        lanes: Lanes,
        hand_over: Callable[[Pending], bool],
        begin_again: Callable[[], None],
    ) -> None:
        self.scheduler: Scheduler | None = None
        self._queues = queues
        self._beliefs = beliefs
        self._lanes = lanes
        self._hand_over = hand_over
        self._begin_again = begin_again
        self._loop = asyncio.get_running_loop()
        self._assumptions: Assumptions | None = None  # of the scheduler
        self._sized = False
        self._clock = SchedulerClock(self._wake, self._timer_was_late)
        self.entries = Entries()
        self.offers = Offers(self._offer_again, self._has_room, self._go_together)
        """What the scheduler has dropped, and is offered again."""
        self._tried_at = 0.0
        """When the scheduler began, or the last batch that was executed ended, s."""

    @property
    def told(self) -> Assumptions:
        """What the scheduler is told, or the last one was; the first must have begun."""
        assert self._assumptions is not None
        return self._assumptions

    def begin(self, scheduler: Scheduler, told: Assumptions, origin: float, *, sized: bool) -> None:
        """Go on with a scheduler.

        Args:
            scheduler: It has no requests yet.
            told: What it assumes.
            origin: When it began, s.
            sized: Whether its policy plans a request by its items.
        """
        self.scheduler, self._assumptions, self._sized = scheduler, told, sized
        self._tried_at = origin
        self._clock.begin(origin)

    def stop(self) -> None:
        """Have no scheduler."""
        self.scheduler = None

    def close(self) -> None:
        """End the timers, and refuse what waits."""
        self.scheduler = None
        self.set_timer()
        self.offers.close()
        for one in self.entries.take_all():
            one.refuse(Status.UNAVAILABLE, "the dispatcher is ending")

    def retry_waiting(self, reason: str, status: Status) -> None:
        """Let everything that waits arrive again at a new scheduler, or refuse it for a reason."""
        waiting = self.entries.take_all()
        for one in waiting:
            self._queues[one.session].items -= one.items
            one.queued = False
        if self.scheduler is None:
            waiting += self.offers.take_of(self._queues)
        for one in sorted(waiting, key=lambda one: one.due):
            self.retry(one, reason, status)
        self.set_timer()  # if nothing waits, the timer is still the old scheduler's

    def submit(self, pending: Pending, *, again: bool = False) -> None:
        """Let a request arrive at the scheduler, with an entry for each of its items, or one of its size.

        Args:
            pending: The request.
            again: Whether it has waited before: then it has no new SLO.
        """
        place = self._stream_of(pending)
        assert self.scheduler is not None
        now, told = self._clock.now(), self.told
        queue = self._queues[pending.session]
        queue.items += pending.items
        offered, pending.queued, pending.dropped = bool(pending.dropped), True, ""
        if pending.trace is not None:
            pending.trace.waits(self._loop.time())
        entries, items = pending.items, 1
        if self._sized:
            # It may have more than the limit, if that was lowered while it waited: of those no time is known.
            entries, items = 1, min(pending.items, told.streams[place].largest)
        given = pending.due - self._clock.origin - now  # s that its client gives it from now on
        left = told.time_left(place, items, given, self._lanes.idle_servers)
        pending.trial = left > given
        slo = queue.session.slo
        if offered:  # a server has nothing to do: it must not wait for as long as its client would
            left = min(left, SOON * told.shortest(place, max(items, told.brief(place))))
        elif again and pending.due > pending.arrived + slo:
            left = min(left, pending.arrived + slo - self._loop.time())
        early = max(slo - left, 0.0)
        commands: list[Command] = []
        for number in self.entries.add(pending, entries):
            commands += self.scheduler.arrive(place, now, number, items=items, early=early)
        self._carry_out(commands)

    def _stream_of(self, pending: Pending) -> int:
        """Return the place of the stream that a request goes with, and note that it is in use."""
        kind = self._queues[pending.session].use(pending.kind, self._loop.time())
        return self.told.place(pending.session, kind)

    def _carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            requests = self.entries.take(command.numbers)
            if isinstance(command, Dispatch):
                self._launch(command, requests)
                continue
            for one in requests:
                self._handle_drop(one)
            if requests and not self._lanes.busy and self._loop.time() > self._tried_at + DOUBTED_AFTER:
                self._tried_at = self._loop.time()
                self._loop.call_later(0, self._forget_what_policy_learned)
        self.set_timer()

    def _forget_what_policy_learned(self) -> None:
        """Begin again: what a policy has learned by itself may keep all requests away, and be wrong."""
        if self.scheduler is not None:
            self._begin_again()

    def _handle_drop(self, pending: Pending) -> None:
        """Refuse a request that the scheduler has dropped, or offer it again later if its client waits."""
        queue = self._queues[pending.session]
        slo = queue.session.slo
        queue.items -= pending.items
        pending.queued = False
        shortest = self.told.shortest(self.told.place(pending.session, pending.kind), pending.items)
        others = self._lanes.occupied or any(one.items for one in self._queues.values())
        pending.dropped = why_dropped(pending, slo, shortest, others=others)
        self.put_off(pending)

    def put_off(self, pending: Pending, *, waited: bool = False) -> None:
        """Offer a request that was dropped once a server has nothing to do, or refuse it.

        Args:
            pending: The request.
            waited: Whether another pool had put it off: then more of them may wait than the limit.
        """
        session = self._queues[pending.session].session
        soonest = self._loop.time() + OFFER_AGAIN * session.slo
        if pending.due <= soonest:
            pending.refuse(Status.DEADLINE, pending.dropped)
        elif not self.offers.add(pending, soonest, math.inf if waited else session.queue):
            problem = f"{pending.dropped}; {session.queue} such items wait already"
            pending.refuse(Status.EXHAUSTED, problem)

    def _offer_again(self, pending: Pending) -> None:
        self.retry(pending, pending.dropped, Status.DEADLINE)

    def _has_room(self) -> bool:
        """Return whether a server has nothing to do."""
        return self.scheduler is not None and bool(self._lanes.idle_servers())

    def _go_together(self, pending: Pending) -> int:
        """Return how many items may be offered at once, so that they do not occupy a server for long."""
        return self.told.brief(self.told.place(pending.session, pending.kind))

    def set_timer(self) -> None:
        """Have the scheduler woken when it wants to be."""
        self._clock.wake_at(math.inf if self.scheduler is None else self.scheduler.wake_at)

    def _wake(self, now: float) -> None:
        if self.scheduler is not None:
            self._carry_out(self.scheduler.wake(now))

    def _timer_was_late(self, seconds: float) -> None:
        self._beliefs.timer_was_late(seconds, self._loop.time())

    def _launch(self, command: Dispatch, requests: Sequence[Pending]) -> None:
        """Send requests to a lane."""
        if traces := traces_of(requests):
            note_planned(traces, self._loop.time(), command.accelerator)
        stream = self.told.streams[command.session]
        queue = self._queues[stream.session.name]
        for one in requests:
            one.queued = False
            one.tries += 1
            queue.items -= one.items
        self._lanes.launch(command.accelerator, stream, requests, self._clock.origin + command.finish)

    def lane_free(self, place: int, executed: bool) -> None:
        """Tell the scheduler that a lane has ended a batch, or all it had when the scheduler began."""
        if executed:
            self._tried_at = self._loop.time()
        if self.scheduler is not None:
            self._carry_out(self.scheduler.finish(place, self._clock.now(), void=not executed))

    def withdraw(self, pending: Pending) -> None:
        """Do not count a request any more that was answered, refused or withdrawn while it waited."""
        if pending.queued:
            self._queues[pending.session].items -= pending.items
        elif pending.dropped:
            self.offers.remove(pending)

    def retry(self, pending: Pending, reason: str, status: Status = Status.UNAVAILABLE) -> None:
        """Let a request arrive again if there is time for it, else refuse it."""
        pending.queued = False
        if pending.over:
            return
        may_try = pending.tries < MOST_TRIES
        if may_try and self._hand_over(pending):
            return
        if self.scheduler is not None and may_try and self._in_time(pending):
            self.submit(pending, again=True)
        else:
            pending.refuse(status, reason)

    def _in_time(self, pending: Pending) -> bool:
        """Return whether it is not ruled out that a request is answered in time."""
        now, place = self._loop.time(), self.told.place(pending.session, pending.kind)
        return now + self.told.quickest(place, pending.items, now) < pending.due
