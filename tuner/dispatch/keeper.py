"""Begins pools of servers for the sessions of a configuration, has their servers probed, and ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from tuner.adapters.connection.security import certificate_files
from tuner.adapters.registry import scheme_of
from tuner.dispatch.backends.catalogue import form_of, parse_backend
from tuner.dispatch.backends.connection import Connection
from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.config import DispatchConfig, SessionConfig
from tuner.dispatch.journal import Journal
from tuner.dispatch.news import unfailing
from tuner.dispatch.pool.beliefs import Beliefs
from tuner.dispatch.pool.observer import Observer
from tuner.dispatch.pool.pool import Pool
from tuner.dispatch.pool.rules import PoolSession
from tuner.dispatch.pool.sending.accelerators import Accelerators
from tuner.dispatch.request import ModelForm
from tuner.files.renewed import Stamp, stamps

__all__ = ["POLL", "Connect", "Members", "PoolKeeper", "certificates_of", "partners", "pool_session"]

POLL = 0.02
"""s between two looks at what a start, a reload or an end waits for."""

FORGET_AFTER = 3600.0
"""s after which a server or a session that no pool has any more is forgotten; until then it may come back."""
_log = logging.getLogger(__name__)

Connect = Callable[[Sequence[str]], Connection]
"""Opens the connection to a server, from the targets of its models."""


class Members(NamedTuple):
    """What makes a pool the same after a reload: its sessions with their targets, and their instances.

    A channel keeps the certificates that it was opened with, so they belong to it.
    """

    sessions: frozenset[tuple[str, tuple[str, ...]]]
    """The name and the targets of each."""
    instances: int
    certificates: tuple[Stamp, ...]
    """The state of the files that the targets name."""

    @classmethod
    def of(cls, sessions: Sequence[SessionConfig], config: DispatchConfig) -> Self:
        """Return what the pool of some sessions is made of."""
        names = frozenset((one.name, one.backends) for one in sessions)
        return cls(names, config.instances, stamps(certificates_of(sessions)))


class PoolKeeper:
    """Keeps all pools until they have ended.

    Args:
        connect: Opens connections.
        observer: Hears of everything.
        beliefs: What is known of servers, whatever their pools.
        warn: Receives what the operator should know: each sentence once while its server is known, and each
            time that a server comes or goes.
        journal: Records what the schedulers are asked and answer, if given.
    """

    def __init__(
        self,
        connect: Connect,
        observer: Observer,
        beliefs: Beliefs,
        warn: Callable[[str], None],
        journal: Journal | None,
    ) -> None:
        self.members: dict[Pool, Members] = {}
        """What each pool is made of."""
        self._connect = connect
        self._observer = observer
        self._beliefs = beliefs
        self._accelerators = Accelerators()
        self._say = unfailing(warn)
        self._warned: dict[str, set[str]] = {}  # the sentences, by the address that they are about
        self._journal = journal
        self._watching: dict[Pool, list[asyncio.Task[None]]] = {}
        self._gone: dict[str, asyncio.TimerHandle] = {}  # by address: forgets a server that no pool has
        self._gone_sessions: dict[str, asyncio.TimerHandle] = {}  # by name: likewise

    def begin(self, sessions: Sequence[SessionConfig], config: DispatchConfig) -> Pool:
        """Make a pool, and begin to probe its servers.

        Args:
            sessions: All of the pool, which have the same servers.
            config: The configuration that they stand in.

        Raises:
            StorageError: A certificate or token of a backend cannot be read.
        """
        made_of = Members.of(sessions, config)  # before the files are read: a renewal meanwhile is seen
        pool = Pool(
            [pool_session(one) for one in sessions],
            config.rules(),
            self._observer,
            self._beliefs,
            self._accelerators,
            journal=self._journal,
        )
        pool.servers = self._servers(sessions, pool, config)
        self.members[pool] = made_of
        loop = asyncio.get_running_loop()
        self._watching[pool] = [loop.create_task(server.watch()) for server in pool.servers]
        for server in pool.servers:
            if (timer := self._gone.pop(server.address, None)) is not None:
                timer.cancel()
        for session in sessions:
            if (timer := self._gone_sessions.pop(session.name, None)) is not None:
                timer.cancel()
        return pool

    async def come_up(self, pools: Sequence[Pool], wait: float) -> None:
        """Wait until all servers were asked and each pool has one, or for some time.

        Args:
            pools: Some that have begun.
            wait: Longest time, s.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait
        servers = [server for pool in pools for server in pool.servers]
        while loop.time() < ends and not (
            all(pool.up for pool in pools) and all(server.asked for server in servers)
        ):
            await asyncio.sleep(POLL)

    async def end(self, pool: Pool) -> None:
        """End a pool and its connections; what still waits there is refused."""
        watching = self._watching.pop(pool, [])
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        if self.members.pop(pool, None) is None:  # a reload and the end of the dispatcher may both end it
            return
        pool.close()
        self._forget_sessions(pool)
        loop = asyncio.get_running_loop()
        present = {server.address for other in self.members for server in other.servers}
        for server in pool.servers:
            if server.address not in present:
                self._gone[server.address] = loop.call_later(FORGET_AFTER, self._forget, server.address)
            try:
                await server.connection.close()
            except Exception:  # the others are closed all the same
                _log.exception("the connection to %s could not be closed", server.address)

    def _forget_sessions(self, pool: Pool) -> None:
        """Forget those sessions of a pool that has ended that no other has, unless they come back."""
        present = {session.name for other in self.members for session in other.sessions}
        for name in {session.name for session in pool.sessions} - present:
            timer = asyncio.get_running_loop().call_later(FORGET_AFTER, self._forget_session, name)
            self._gone_sessions[name] = timer

    def _forget_session(self, name: str) -> None:
        """Forget a session."""
        del self._gone_sessions[name]
        self._beliefs.forget_session(name)
        self._observer.session_gone(name)

    def _forget(self, address: str) -> None:
        """Forget a server."""
        del self._gone[address]
        self._warned.pop(address, None)
        self._beliefs.forget(address)
        self._accelerators.forget(address)
        self._observer.gone(address)

    def _servers(
        self, sessions: Sequence[SessionConfig], pool: Pool, config: DispatchConfig
    ) -> list[WatchedServer]:
        """Return the servers of a pool. All its sessions have the same ones."""
        targets: dict[str, list[str]] = {}
        models: dict[str, dict[str, str]] = {}
        forms: dict[str, dict[str, ModelForm]] = {}
        for session in sessions:
            for target in session.backends:
                parsed = parse_backend(target)
                targets.setdefault(parsed.address, []).append(target)
                models.setdefault(parsed.address, {})[session.name] = parsed.model
                forms.setdefault(parsed.address, {})[session.name] = form_of(parsed)
        return [
            WatchedServer(
                connection=self._connect(found),
                models=models[address],
                forms=forms[address],
                instances=config.instances,
                scheme=scheme_of(found[0]),
                batches_itself=config.mode == "grants",
                changed=pool.changed,
                warn=partial(self._warn, address),
                say=self._say,
            )
            for address, found in targets.items()
        ]

    def _warn(self, address: str, sentence: str) -> None:
        warned = self._warned.setdefault(address, set())
        if sentence not in warned:
            warned.add(sentence)
            self._say(sentence)


def pool_session(session: SessionConfig) -> PoolSession:
    """Return what a pool needs to know of a session."""
    profile = session.profile
    return PoolSession(
        name=session.name,
        slo=session.slo_ms / 1e3,
        queue=session.queue,
        max_batch=session.max_batch,
        prior=(profile.alpha_ms / 1e3, profile.beta_ms / 1e3) if profile is not None else None,
    )


def certificates_of(sessions: Sequence[SessionConfig]) -> list[Path]:
    """Return the files of certificates that the targets of some sessions name, each once."""
    return sorted({file for one in sessions for text in one.backends for file in certificate_files(text)})


def partners(sessions: Sequence[SessionConfig]) -> list[list[SessionConfig]]:
    """Return the sessions that use the same servers together; the configuration allows no others."""
    pools: dict[frozenset[str], list[SessionConfig]] = {}
    for session in sessions:
        pools.setdefault(frozenset(session.servers), []).append(session)
    return list(pools.values())
