"""The dispatcher: what the fronts ask, answered by the pools of servers.

Sessions that use a server in common form a pool, which has one scheduler. Each request is checked, given a
deadline and handed to its session's pool. It gets one answer or one refusal, at its deadline at the latest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tuner.dispatch.backends.connection import Lost
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.grant import Ask, Ended, Grant
from tuner.dispatch.journal import Journal
from tuner.dispatch.keeper import POLL, Connect, Members, PoolKeeper, partners, pool_session
from tuner.dispatch.pool.beliefs import Beliefs
from tuner.dispatch.pool.observer import Observer
from tuner.dispatch.pool.pending import Pending
from tuner.dispatch.pool.pool import Pool
from tuner.dispatch.pool.rules import PoolSession, Rules
from tuner.dispatch.pool.sending.tensors import count_items, kind_of
from tuner.dispatch.request import Metadata, Refused, Reply, Request, Status, TraceContext
from tuner.dispatch.tracing import Tracing
from tuner.dispatch.visit import Visit
from tuner.errors import InvalidInput

__all__ = ["Dispatcher"]

ASK = 5.0
"""s that a server may take to say what its model expects."""
KNOWN = 5.0
"""s that what a server said of a model is believed: it may get another version while the server is up."""
ONLY_GRANTS = "the dispatcher takes no requests: it has mode: grants, for clients of tuner.dispatch.client"
START = 10.0
"""s that :meth:`Dispatcher.start` waits for a server of each pool."""


class Dispatcher:
    """Answers requests by batches on the servers of a configuration.

    :meth:`start` begins to probe the servers, and :meth:`close` ends. In between, the fronts call the methods
    of :class:`~tuner.dispatch.request.Service`, from the event loop that it was started in; :meth:`reload`
    changes what it serves.

    Args:
        config: Sessions, servers and policy.
        connect: Opens connections.
        observer: Hears of everything.
        warn: Receives what the operator should know.
        journal: Records what the schedulers are asked and answer, if given.
        tracing: Traces the requests, if given.
    """

    def __init__(
        self,
        config: DispatchConfig,
        connect: Connect,
        observer: Observer,
        warn: Callable[[str], None],
        journal: Journal | None = None,
        *,
        tracing: Tracing | None = None,
    ) -> None:
        self.config = config
        self.pools: list[Pool] = []
        self.changing = asyncio.Lock()
        """Held by whoever changes knobs or the configuration."""
        self._observer = observer
        self._tracing = tracing
        self._beliefs = Beliefs(config.quantile)
        self._keeper = PoolKeeper(connect, observer, self._beliefs, warn, journal)
        self._pool_of: dict[str, Pool] = {}  # by session
        self._metadata: dict[str, _Known] = {}
        self._open: dict[Pending, Pool] = {}  # where each request waits, or waited last
        self._retiring: set[asyncio.Task[None]] = set()
        self._ending = False

    # What the fronts ask.

    @property
    def sessions(self) -> Sequence[str]:
        """The names of the sessions."""
        return tuple(self._pool_of)

    @property
    def ending(self) -> bool:
        """Whether no more requests are taken, because it ends."""
        return self._ending

    def ready(self, session: str | None = None) -> bool:
        """Return whether requests are taken, by one session or by any."""
        if self._ending:
            return False
        if session is None:
            return any(pool.up for pool in self.pools)
        return session in self._pool_of and self._pool_of[session].up

    async def metadata(self, session: str) -> Metadata:
        """Return what a session's model expects and gives; see `Service`."""
        pool, now = self._pool(session), asyncio.get_running_loop().time()
        known, changes = self._metadata.get(session), pool.changes
        if known is not None and known.holds(pool, now):
            return known.metadata
        why = "no backend is up"
        for server in pool.servers:
            if not server.up:
                why = server.reason
                continue
            try:
                found = await server.connection.metadata(server.models[session], ASK)
            except Lost as error:
                if self._pool_of.get(session) is not pool:  # a reload has closed the pool's connections
                    return await self.metadata(session)
                why = str(error)
                continue
            found = replace(found, name=session)
            if self._pool_of.get(session) is pool:
                self._metadata[session] = _Known(found, pool, changes, now + KNOWN)
            return found
        raise Refused(Status.UNAVAILABLE, f"no backend says what {session} expects: {why}")

    async def infer(self, request: Request, write: Callable[[Reply], bytes]) -> bytes:
        """Answer a request; see `Service`."""
        now = asyncio.get_running_loop().time()
        pool, name = self._pool(request.session), request.session
        with self._visit(name, request.trace, now) as visit:
            if self.config.mode == "grants":
                raise Refused(Status.UNSUPPORTED, ONLY_GRANTS)
            items = count_items(request.inputs) if pool.up and pool.takes_items(name) else 1
            reply: Reply = await self._answer_of(pool, request, kind_of(request), items, visit)
            # Before it counts as answered: what cannot be written is no answer.
            answer = write(reply)
        visit.over()
        return answer

    async def grant(self, ask: Ask) -> Grant:
        """Wait until a request may be sent; see `Grants`."""
        now = asyncio.get_running_loop().time()
        pool, name = self._pool(ask.session), ask.session
        with self._visit(name, ask.trace, now) as visit:
            items = ask.items if pool.up and pool.takes_items(name) else 1
            if items < 1:
                raise Refused(Status.INVALID, f"a request of {name} has at least 1 item, not {items}")
            request = Request(name, (), deadline=ask.deadline)
            grant: Grant = await self._answer_of(pool, request, ask.kind, items, visit)

        def ended(what: asyncio.Future[Ended]) -> None:
            seconds, lost, status = what.result()
            if lost:
                visit.over(Status.UNAVAILABLE, lost)
            elif status is not None:
                visit.over(status, "its backend refused it")
            elif seconds is not None:
                visit.over()
            else:
                visit.withdrawn()

        grant.ended.add_done_callback(ended)
        return grant

    def _visit(self, session: str, caller: TraceContext | None, now: float) -> Visit:
        """Return what reports the way of a request that arrives now."""
        trace = None if self._tracing is None else self._tracing.begin(session, caller, now)
        return Visit(session, self._observer, trace, now)

    async def _answer_of(self, pool: Pool, request: Request, kind: Hashable, items: int, visit: Visit) -> Any:
        """Let a request wait in a pool; return its answer, which comes before its deadline.

        Args:
            pool: Of its session.
            request: The request.
            kind: What the requests of one batch must have in common.
            items: Of the request; 1 where nobody knows whether it has items.
            visit: Hears of its way.

        Raises:
            Refused: It has no answer.
        """
        if self._ending:
            raise Refused(Status.UNAVAILABLE, "the dispatcher is ending and takes no more requests")
        due = visit.arrived + pool.session(request.session).slo
        if request.deadline is not None:
            due = request.deadline
        if due <= visit.arrived:
            raise Refused(Status.DEADLINE, "the deadline had passed when the request arrived")
        visit.ends(due)
        if pool.up:  # else nobody knows whether it has items
            visit.taken(items)
        loop = asyncio.get_running_loop()
        pending = Pending(request, items, visit.arrived, due, loop.create_future(), kind, visit.trace)
        timer = loop.call_at(due, _expire, pending)
        self._open[pending] = pool
        try:
            pool.submit(pending)
            return await pending.future
        except asyncio.CancelledError:
            pending.give_back()
            raise
        finally:
            timer.cancel()
            del self._open[pending]

    def _pool(self, session: str) -> Pool:
        pool = self._pool_of.get(session)
        if pool is None:
            raise Refused(Status.NOT_FOUND, f"there is no session '{session}'")
        return pool

    # Its life.

    async def start(self, wait: float = START) -> None:
        """Begin to probe the servers; wait until all were asked and each pool has one, or for some time.

        Args:
            wait: Longest time, s.
        """
        self.pools = [self._keeper.begin(members, self.config) for members in partners(self.config.sessions)]
        await self._keeper.come_up(self.pools, wait)
        self._pool_of = {one.name: pool for pool in self.pools for one in pool.sessions}

    async def reload(self, config: DispatchConfig, wait: float = START, *, keep_knobs: bool = False) -> None:
        """Go over to another configuration; every request that was taken is answered.

        Pools whose sessions and backends are the same, with their certificates, go on. Of the others new ones
        begin, and once their servers are up, requests go there, with those that wait. What is left in the old
        ones is answered there, or goes to the new ones, too, if its server is lost. Where clients are
        answered, and the mode, stay as they are. One call ends before the next begins: who calls sees to it.

        Args:
            config: The new configuration.
            wait: Longest time for the servers of new pools to come up, s.
            keep_knobs: Whether knobs stay as they are set, for the same sessions; else the file counts.

        Raises:
            InvalidInput: No backend came up for a session that has one now, or the dispatcher is ending;
                nothing changes.
            StorageError: A certificate or token of a backend cannot be read; nothing changes.
        """
        plan = _Plan()
        try:
            self._prepare(plan, config)
            await self._keeper.come_up(plan.begun, wait)
            if self._ending:
                raise InvalidInput("the configuration", "cannot change, the dispatcher is ending")
            self._check_up(plan.begun)
        except BaseException:  # also where who asked for it gave up
            for pool in plan.begun:
                await self._keeper.end(pool)
            raise
        rules, sessions = config.rules(), {one.name: pool_session(one) for one in config.sessions}
        if keep_knobs:
            rules = self.pools[0].rules
            sessions = {one.name: one for pool in self.pools for one in pool.sessions}
        self._carry_out(plan, config, rules, sessions)

    async def renew(self) -> None:
        """Open new connections to backends whose certificates were renewed; knobs stay as they are set.

        Raises:
            InvalidInput: By the new ones no backend came up for a session that has one now; nothing changes.
            StorageError: One cannot be read, or does not fit its key; nothing changes.
        """
        await self.reload(self.config, keep_knobs=True)

    def _prepare(self, plan: _Plan, config: DispatchConfig) -> None:
        """Find the pools that go on, and begin those that are new; ``plan`` is modified in place.

        Raises:
            StorageError: A certificate or token of a backend cannot be read.
        """
        present = {members: pool for pool, members in self._keeper.members.items() if pool in self.pools}
        for members in partners(config.sessions):
            pool = present.pop(Members.of(members, config), None)
            if pool is None:
                plan.begun.append(pool := self._keeper.begin(members, config))
            plan.pools.append(pool)
        plan.gone = list(present.values())

    def _check_up(self, begun: Sequence[Pool]) -> None:
        """Check that no session loses its servers to ones that did not come up.

        Raises:
            InvalidInput: One would.
        """
        for pool in begun:
            losers = [
                one.name for one in pool.sessions if one.name in self._pool_of and self._pool_of[one.name].up
            ]
            if not pool.up and losers:
                raise InvalidInput(f"backends of {', '.join(losers)}", pool.why_down())

    def _carry_out(
        self, plan: _Plan, config: DispatchConfig, rules: Rules, sessions: Mapping[str, PoolSession]
    ) -> None:
        """Go over to the pools of a plan."""
        for pool in plan.pools:
            pool.reconfigure(rules, [sessions[one.name] for one in pool.sessions])
        for pool in plan.begun:
            pool.restart()  # the old pools have gone on sending batches to its servers
        self.config, self.pools = config, plan.pools
        self._beliefs.quantile = config.quantile
        self._pool_of = {one.name: pool for pool in plan.pools for one in pool.sessions}
        self._metadata.clear()
        for pool in plan.gone:
            for pending in pool.release(self._pool_of):
                self._move(pending, self._pool_of[pending.session])
            pool.hand_over = self._hand_over
            task = asyncio.get_running_loop().create_task(self._retire(pool))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    def _move(self, pending: Pending, pool: Pool) -> None:
        """Let a request that another pool had wait in this one."""
        self._open[pending] = pool
        pool.submit(pending, waited=True)

    def _hand_over(self, pending: Pending) -> bool:
        """Let a request that an old pool could not get answered go on where its session is now.

        Returns:
            Whether it does: its session may be gone, or without a server.
        """
        pool = self._pool_of.get(pending.session)
        if pool is None or not pool.up:
            return False
        self._move(pending, pool)
        return True

    async def _retire(self, pool: Pool) -> None:
        """End a pool once everything that it has is answered."""
        while pool.busy or pool in self._open.values():
            await asyncio.sleep(POLL)
        await self._keeper.end(pool)

    def stop_taking(self) -> None:
        """Take no more requests; those that were taken are answered."""
        self._ending = True

    async def close(self, wait: float = 5.0) -> None:
        """End: take no more requests, wait for those there are, then close the connections.

        Args:
            wait: Longest time, s.
        """
        self.stop_taking()
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait
        while self._open and loop.time() < ends:
            await asyncio.sleep(POLL)
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        pools = list(self._keeper.members)
        for pool in pools:
            pool.close()
        for pending in list(self._open):
            pending.refuse(Status.UNAVAILABLE, "the dispatcher is ending")
        for pool in pools:
            await self._keeper.end(pool)


@dataclass
class _Plan:
    """What a reload does."""

    pools: list[Pool] = field(default_factory=list)
    """All pools after the reload."""
    begun: list[Pool] = field(default_factory=list)
    """Pools that are new."""
    gone: list[Pool] = field(default_factory=list)
    """Pools that end."""


class _Known(NamedTuple):
    """What a server said of a session's model."""

    metadata: Metadata
    pool: Pool
    changes: int
    """Of the pool when the server was asked."""
    ends: float
    """When it is asked again, s."""

    def holds(self, pool: Pool, now: float) -> bool:
        """Return whether the session's pool has the servers that it had, and not much time has passed."""
        return pool is self.pool and pool.changes == self.changes and now < self.ends


def _expire(pending: Pending) -> None:
    did = "it still waited for its batch" if pending.queued else "its batch had not ended"
    pending.refuse(Status.DEADLINE, pending.dropped or f"the deadline passed: {did}")
