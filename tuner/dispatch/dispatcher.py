"""The dispatcher: what the fronts ask, answered by the pools of servers.

Sessions that use a server in common form a pool, which has one scheduler. Each request is checked, given a
deadline and handed to its session's pool. It gets one answer or one refusal, at its deadline at the latest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from tuner.adapters.registry import scheme_of
from tuner.dispatch.backends.catalogue import parse_backend
from tuner.dispatch.backends.connection import Connection, Lost
from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.config import DispatchConfig, SessionConfig
from tuner.dispatch.grant import Ask, Ended, Grant
from tuner.dispatch.journal import Journal
from tuner.dispatch.pool.accelerators import Accelerators
from tuner.dispatch.pool.beliefs import Beliefs
from tuner.dispatch.pool.pending import Pending
from tuner.dispatch.pool.pool import Pool
from tuner.dispatch.pool.rules import Observer, PoolSession
from tuner.dispatch.pool.tensors import count_items, kind_of
from tuner.dispatch.request import Metadata, Refused, Reply, Request, Status, TraceContext
from tuner.dispatch.tracing import Tracing
from tuner.dispatch.visit import Visit
from tuner.errors import InvalidInput, StorageError

__all__ = ["Connect", "Dispatcher"]

Connect = Callable[[str], Connection]
"""Opens the connection to the server of a target."""
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
        self._connect = connect
        self._observer = observer
        self._warned: set[str] = set()
        self._say = warn
        self._journal = journal
        self._tracing = tracing
        self._beliefs = Beliefs(config.quantile)
        self._accelerators = Accelerators()
        self._places: dict[str, Pool] = {}
        self._metadata: dict[str, _Known] = {}
        self._members: dict[Pool, _Members] = {}
        self._watching: dict[Pool, list[asyncio.Task[None]]] = {}
        self._open: dict[Pending, Pool] = {}  # where each request waits, or waited last
        self._retiring: set[asyncio.Task[None]] = set()
        self._ending = False

    # What the fronts ask.

    @property
    def sessions(self) -> Sequence[str]:
        """The names of the sessions."""
        return tuple(self._places)

    def ready(self, session: str | None = None) -> bool:
        """Return whether requests are taken, by one session or by any."""
        if self._ending:
            return False
        if session is None:
            return any(pool.up for pool in self.pools)
        return session in self._places and self._places[session].up

    async def metadata(self, session: str) -> Metadata:
        """Return what a session's model expects and gives; see `Service`."""
        pool, now = self._place(session), asyncio.get_running_loop().time()
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
                why = str(error)
                continue
            found = Metadata(session, found.versions, found.platform, found.inputs, found.outputs)
            if self._places.get(session) is pool:
                self._metadata[session] = _Known(found, pool, changes, now + KNOWN)
            return found
        raise Refused(Status.UNAVAILABLE, f"no backend says what {session} expects: {why}")

    async def infer(self, request: Request) -> Reply:
        """Answer a request; see `Service`."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        pool, name = self._place(request.session), request.session
        with self._visit(name, request.trace, now) as visit:
            if self.config.mode == "grants":
                raise Refused(Status.UNSUPPORTED, ONLY_GRANTS)
            items = count_items(request.inputs) if pool.up and pool.takes_items(name) else 1
            due = self._due(pool, name, request.deadline, now)
            visit.taken(items, due)
            future, kind = loop.create_future(), kind_of(request)
            reply: Reply = await self._answered(
                Pending(request, items, now, due, future, kind, visit.trace), pool
            )
        visit.over()
        return reply

    async def grant(self, ask: Ask) -> Grant:
        """Wait until a request may be sent; see `Grants`."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        pool, name = self._place(ask.session), ask.session
        with self._visit(name, ask.trace, now) as visit:
            items = 1 if pool.up and not pool.takes_items(name) else ask.items
            due = self._due(pool, name, ask.deadline, now)
            visit.taken(items, due)
            request, future = Request(name, ()), loop.create_future()
            grant: Grant = await self._answered(
                Pending(request, items, now, due, future, ask.kind, visit.trace), pool
            )

        def ended(what: asyncio.Future[Ended]) -> None:
            seconds, lost = what.result()
            if seconds is None and not lost:
                visit.withdrawn()
            else:
                visit.over(Status.UNAVAILABLE if lost else None, lost)

        grant.ended.add_done_callback(ended)
        return grant

    def _visit(self, session: str, caller: TraceContext | None, now: float) -> Visit:
        """Return what reports the way of a request that arrives now."""
        trace = None if self._tracing is None else self._tracing.begin(session, caller, now)
        return Visit(session, self._observer, trace, now)

    def _due(self, pool: Pool, session: str, deadline: float | None, now: float) -> float:
        """Return when the answer to a request becomes worthless.

        Raises:
            Refused: No more requests are taken, or it is worthless now.
        """
        if self._ending:
            raise Refused(Status.UNAVAILABLE, "the dispatcher is ending and takes no more requests")
        due = now + pool.session(session).slo if deadline is None else deadline
        if due <= now:
            raise Refused(Status.DEADLINE, "the deadline had passed when the request arrived")
        return due

    async def _answered(self, pending: Pending, pool: Pool) -> Any:
        """Wait for the answer, at most until the deadline."""
        timer = asyncio.get_running_loop().call_at(pending.due, _expire, pending)
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

    def _place(self, session: str) -> Pool:
        place = self._places.get(session)
        if place is None:
            raise Refused(Status.NOT_FOUND, f"there is no session '{session}'")
        return place

    # Its life.

    async def start(self, wait: float = START) -> None:
        """Begin to probe the servers; wait until all were asked and each pool has one, or for some time.

        Args:
            wait: Longest time, s.
        """
        self.pools = [self._begun(members, self.config) for members in _pools(self.config.sessions)]
        await self._come_up(self.pools, wait)
        self._places = {one.name: pool for pool in self.pools for one in pool.sessions}

    def _begun(self, members: Sequence[SessionConfig], config: DispatchConfig) -> Pool:
        """Make a pool, and begin to probe its servers."""
        sessions = [_pool_session(one) for one in members]
        pool = Pool(
            sessions,
            config.rules(),
            self._observer,
            self._beliefs,
            self._accelerators,
            journal=self._journal,
        )
        pool.servers = self._servers(members, pool, config)
        self._members[pool] = _Members.of(members, config)
        loop = asyncio.get_running_loop()
        self._watching[pool] = [loop.create_task(server.watch()) for server in pool.servers]
        return pool

    async def _come_up(self, pools: Sequence[Pool], wait: float) -> None:
        """Wait until all servers were asked and each pool has one, or for some time, s."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait
        servers = [server for pool in pools for server in pool.servers]
        while loop.time() < ends and not (
            all(pool.up for pool in pools) and all(server.asked for server in servers)
        ):
            await asyncio.sleep(0.02)

    async def reload(self, config: DispatchConfig, wait: float = START) -> None:
        """Go over to another configuration; every request that was taken is answered.

        Pools whose sessions and backends are the same go on. Of the others new ones begin, and once their
        servers are up, requests go there, with those that wait. What is left in the old ones is answered
        there. Where clients are answered, and the mode, stay as they are. One call ends before the next
        begins: who calls sees to that.

        Args:
            config: The new configuration.
            wait: Longest time for the servers of new pools to come up, s.

        Raises:
            InvalidInput: No backend came up for a session that has one now; nothing changes.
            StorageError: A certificate or token of a backend cannot be read; nothing changes.
        """
        plan = _Plan()
        try:
            self._prepare(plan, config)
            await self._come_up(plan.begun, wait)
            self._check_up(plan.begun)
        except (InvalidInput, StorageError):
            for pool in plan.begun:
                await self._end(pool)
            raise
        self._carry_out(plan, config)

    def _prepare(self, plan: _Plan, config: DispatchConfig) -> None:
        """Find the pools that go on, and begin those that are new; ``plan`` is modified in place.

        Raises:
            StorageError: A certificate or token of a backend cannot be read.
        """
        present = {members: pool for pool, members in self._members.items() if pool in self.pools}
        for members in _pools(config.sessions):
            pool = present.pop(_Members.of(members, config), None)
            if pool is None:
                plan.begun.append(pool := self._begun(members, config))
            else:
                plan.kept.append((pool, members))
            plan.pools.append(pool)
        plan.gone = list(present.values())

    def _check_up(self, begun: Sequence[Pool]) -> None:
        """Check that no session loses its servers to ones that did not come up.

        Raises:
            InvalidInput: One would.
        """
        for pool in begun:
            losers = [
                one.name for one in pool.sessions if one.name in self._places and self._places[one.name].up
            ]
            if not pool.up and losers:
                raise InvalidInput(f"backends of {', '.join(losers)}", pool.why_down())

    def _carry_out(self, plan: _Plan, config: DispatchConfig) -> None:
        """Go over to the pools of a plan."""
        for pool, members in plan.kept:
            pool.set(config.rules(), [_pool_session(one) for one in members])
        for pool in plan.begun:
            pool.restart()  # the old pools have gone on sending batches to its servers
        self.config, self.pools = config, plan.pools
        self._beliefs.quantile = config.quantile
        self._places = {one.name: pool for pool in plan.pools for one in pool.sessions}
        self._metadata.clear()
        for pool in plan.gone:
            for pending in pool.release(self._places):
                self._open[pending] = there = self._places[pending.session]
                there.submit(pending)
            task = asyncio.get_running_loop().create_task(self._retire(pool))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def _retire(self, pool: Pool) -> None:
        """End a pool once everything that it has is answered."""
        while pool.busy or pool in self._open.values():
            await asyncio.sleep(0.02)
        await self._end(pool)

    async def _end(self, pool: Pool) -> None:
        """End a pool and its connections; what still waits there is refused."""
        watching = self._watching.pop(pool, [])
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        pool.close()
        del self._members[pool]
        for server in pool.servers:
            await server.connection.close()

    def _servers(
        self, members: Sequence[SessionConfig], pool: Pool, config: DispatchConfig
    ) -> list[WatchedServer]:
        """Return the servers of a pool. All its sessions have the same ones."""
        connections: dict[str, Connection] = {}
        models: dict[str, dict[str, str]] = {}
        schemes: dict[str, str] = {}
        for session in members:
            for target in session.backends:
                parsed = parse_backend(target)
                if parsed.address not in connections:
                    connections[parsed.address] = self._connect(target)
                    schemes[parsed.address] = scheme_of(target)
                models.setdefault(parsed.address, {})[session.name] = parsed.model
        return [
            WatchedServer(
                connection=connection,
                models=models[address],
                instances=config.instances,
                scheme=schemes[address],
                batches_itself=config.mode == "grants",
                changed=pool.changed,
                warn=self._warn,
            )
            for address, connection in connections.items()
        ]

    def _warn(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._say(sentence)

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
            await asyncio.sleep(0.02)
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        pools = list(self._members)
        for pool in pools:
            pool.close()
        for pending in list(self._open):
            pending.refuse(Status.UNAVAILABLE, "the dispatcher is ending")
        for pool in pools:
            await self._end(pool)


@dataclass
class _Plan:
    """What a reload does."""

    pools: list[Pool] = field(default_factory=list)
    """All that there will be."""
    kept: list[tuple[Pool, list[SessionConfig]]] = field(default_factory=list)
    """Those that go on, with what their sessions become."""
    begun: list[Pool] = field(default_factory=list)
    """Those that are new."""
    gone: list[Pool] = field(default_factory=list)
    """Those that end."""


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


class _Members(NamedTuple):
    """What a pool is made of; one whose members are others is another pool."""

    sessions: frozenset[tuple[str, tuple[str, ...]]]
    """With their targets."""
    instances: int

    @classmethod
    def of(cls, members: Sequence[SessionConfig], config: DispatchConfig) -> Self:
        """Return what the pool of some sessions is made of."""
        return cls(frozenset((one.name, one.backends) for one in members), config.instances)


def _expire(pending: Pending) -> None:
    did = "its batch had not ended" if pending.sent else "it still waited for its batch"
    pending.refuse(Status.DEADLINE, f"the deadline passed: {did}")


def _pool_session(session: SessionConfig) -> PoolSession:
    profile = session.profile
    return PoolSession(
        name=session.name,
        slo=session.slo_ms / 1e3,
        queue=session.queue,
        max_batch=session.max_batch,
        prior=(profile.alpha_ms / 1e3, profile.beta_ms / 1e3) if profile is not None else None,
    )


def _pools(sessions: Sequence[SessionConfig]) -> list[list[SessionConfig]]:
    """Return the sessions that use the same servers together; the configuration allows no others."""
    pools: dict[frozenset[str], list[SessionConfig]] = {}
    for session in sessions:
        pools.setdefault(session.servers, []).append(session)
    return list(pools.values())
