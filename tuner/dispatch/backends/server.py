"""A server as the dispatcher sees it: whether it takes batches, what its models can do, how far away it is.

====  ======================================================  ==================================
is    what happens                                            and then
====  ======================================================  ==================================
down  it answers for all its models, and nothing that it was  up: it gets batches
      given up on is still on its way to it
up    a batch fails, is far too late, or two probes fail; or  down: its batches go elsewhere
      a model was replaced by one that cannot be served
up    it refuses, one after the other, what another server     down for a while, see `outlier`
      answers
up    a model was replaced by one with other limits           up: with these
any   we ourselves fail over it, such as the pool that takes  down; the pool hears of it again
      it in
====  ======================================================  ==================================
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tuner.dispatch.backends.connection import Connection, Lost, ModelLimits
from tuner.dispatch.backends.outlier import Came, Outlier
from tuner.dispatch.news import News
from tuner.dispatch.request import ModelForm

__all__ = ["WatchedServer"]

PROBE_UP, PROBE_DOWN = 1.0, 0.25
"""s between two probes of a server that is up, and of one that is down."""
ANSWER_IN = 2.0
"""s that a probe may take; more than a busy server needs."""
ASK_LIMITS = 5.0
"""s between two questions to a server that is up what its models can do: they may be deployed anew."""
FAILURES = 2
"""Failed probes, one after the other, after which a server is down."""
LONGEST_LOOK = 2 * ANSWER_IN
"""s that a refused batch waits at most for what a probe shows of its server."""
LONGEST_ORPHAN = 30.0
"""s after which a batch that was given up no longer keeps its server down: its connection is dead."""
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class WatchedServer:
    """One server and its health.

    It begins down. :meth:`watch` probes it until it is cancelled; whoever sends it batches reports with
    :meth:`lost` what failed. Both call ``changed`` when the server comes or goes, or its limits change.
    """

    connection: Connection
    models: Mapping[str, str]
    """The model of each session that it serves, by the name of the session."""
    forms: Mapping[str, ModelForm]
    """What is asked of each of them."""
    instances: int
    """Batches that it executes at a time."""
    scheme: str
    """What it speaks, as in its targets: ``triton``."""
    batches_itself: bool
    """Whether it should merge requests by itself, because frontends send them one by one."""
    changed: Callable[[WatchedServer], None]
    warn: Callable[[str], None]
    """Receives what the operator should know, each sentence once."""
    say: Callable[[str], None]
    """Receives what the operator should know each time: that it came, or why it went. Does not raise."""
    up: bool = False
    asked: bool = False
    """Whether it was probed."""
    reason: str = "was not asked yet"
    """Why it is down."""
    limits: dict[str, ModelLimits] = field(default_factory=dict)
    """What it said last of each session's model."""
    orphans: dict[asyncio.Task[object], float] = field(default_factory=dict)
    """Batches that were given up and have not ended, and when each is forgotten, s."""
    outlier: Outlier = field(default_factory=Outlier)
    """What it has refused."""
    _told: bool = True
    """Whether ``changed`` has taken what it was called for last."""
    _news: News = field(init=False)
    _failures: int = 0
    """Failed probes, one after the other."""
    _doubt: str = ""
    _limits_at: float = 0.0
    """When it said so, s."""
    _trips: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _looked: asyncio.Event = field(default_factory=asyncio.Event)
    """Of the next probe: set when it has ended, or the server was lost before."""

    def __post_init__(self) -> None:
        self._news = News(self.say)

    @property
    def address(self) -> str:
        """As ``host:port``."""
        return self.connection.address

    @property
    def backend(self) -> str:
        """As ``scheme://host:port``."""
        return f"{self.scheme}://{self.address}"

    @property
    def round_trip(self) -> float:
        """The shortest of the last probes, s: what a question costs that needs no work."""
        return min(self._trips, default=0.0)

    def lost(self, reason: str) -> None:
        """Take the server out: a batch failed on it."""
        self.reason = reason
        self._doubt = ""
        self._looked.set()
        if self.up:
            self.up = False
            self._woken.set()
            self._announce(f"backend down: {reason}")
            self._tell()

    @property
    def ejected(self) -> bool:
        """Whether it is out because others answer what it refuses."""
        return not self.up and asyncio.get_running_loop().time() < self.outlier.until

    def compared(self, session: str, words: str, came: Came, enough: int) -> None:
        """Another server was to be asked what this one refuses; take this one out if it is an outlier.

        Args:
            session: Whose request it was.
            words: Why this server refused.
            came: What came of that.
            enough: How often another one must answer.
        """
        now = asyncio.get_running_loop().time()
        if self.up and self.outlier.compared(session, now, came, enough):
            out = f"{self.address} is out for {self.outlier.out:g} s"
            why = f"{out}: other backends answer what it refuses; {words}"
            self.lost(why)

    def readmit(self, *, always: bool) -> None:
        """Bring it back as soon as it answers probes, because no other is better.

        Args:
            always: Whether also if it was an outlier again soon after it had been brought back so.
        """
        now, outlier = asyncio.get_running_loop().time(), self.outlier
        if self.ejected and (always or now >= outlier.early + outlier.out):
            outlier.until = outlier.early = now
            self._woken.set()

    def _announce(self, sentence: str) -> None:
        """Say to the operator that it came or went."""
        self._news.tell(sentence, asyncio.get_running_loop().time())

    def _tell(self) -> None:
        """Say that it came or went, or that its limits changed."""
        self._told = False
        self.changed(self)
        self._told = True

    def doubt(self, reason: str) -> None:
        """Probe the server now, and take it out if that fails.

        A frontend could not reach it, or it refused a batch as if it did not serve the model.
        """
        if self.up:
            self._doubt = reason
            self._woken.set()

    async def doubted(self, reason: str) -> bool:
        """Probe the server now, as :meth:`doubt` does; return whether it is up when that has ended."""
        if self.up:
            looked = self._looked
            self.doubt(reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_LOOK):
                    await looked.wait()
        return self.up

    def give_up(self, batch: asyncio.Task[object]) -> None:
        """Wait no longer for a batch. It is not cancelled: Triton was seen to die of cancelled requests."""
        now = asyncio.get_running_loop().time()
        self.orphans[batch] = now + LONGEST_ORPHAN
        batch.add_done_callback(self._ended)

    def _ended(self, batch: asyncio.Task[object]) -> None:
        self.orphans.pop(batch, None)
        if not batch.cancelled():
            batch.exception()  # nobody waits for it any more

    async def watch(self) -> None:
        """Probe it for good, whatever fails: else a server would never come back."""
        while True:
            looked, self._looked = self._looked, asyncio.Event()
            doubt, self._doubt = self._doubt, ""
            try:
                await self._look(doubt)
            except Exception:
                _log.exception("probing %s failed in the dispatcher; it goes on", self.address)
                self.reason = f"the dispatcher failed over {self.address}; its log says why"
                if self.up:  # else the pool knows that it is down, or is told so again anyway
                    self._announce(f"backend down: {self.reason}")
                    self.up, self._told = False, False
            finally:
                looked.set()
            self.asked = True
            if not self._doubt:  # else it came while the server was probed for another reason
                self._woken.clear()
            # Not `wait_for`, which in Python 3.11 swallows a cancellation that comes with what it awaits.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROBE_UP if self.up else PROBE_DOWN):
                    await self._woken.wait()

    async def _look(self, doubt: str) -> None:
        """Probe it, and take it in or out by what that shows; with a doubt, one failure is enough."""
        self._news.catch_up(asyncio.get_running_loop().time())
        if not self._told:
            self._tell()
        if not self.up:
            self._failures = 0
            await self._come_up()
        elif await self._probe():
            self._failures = 0
            await self._refresh_limits()
        else:
            self._failures += 1
            doubt = doubt or self._doubt
            if self._failures >= FAILURES or doubt:
                self.lost(doubt or f"{self.connection.probed_at} did not answer {FAILURES} probes")

    async def _probe(self) -> bool:
        """Ask whether it answers for its models; note how long that takes."""
        loop = asyncio.get_running_loop()
        for model in sorted(set(self.models.values())):
            began = loop.time()
            if not await self.connection.ready(model, ANSWER_IN):
                self.reason = f"{self.connection.probed_at} does not answer, or does not serve {model}"
                return False
            self._trips.append(loop.time() - began)
        return True

    async def _come_up(self) -> None:
        """Take it in if it answers and its models can be served."""
        now = asyncio.get_running_loop().time()
        for batch, forgotten in list(self.orphans.items()):
            if forgotten <= now:
                batch.cancel()
        if self.orphans or self.ejected or not await self._probe():
            return
        try:
            found = await self._ask_limits()
        except Lost as error:
            self.reason = str(error)
            return
        if problem := self._check(found):
            if problem != self.reason:  # else the operator has just heard it, as why the server went
                self.warn(problem)
            self.reason = problem
            return
        self.limits, self.reason, self.up = found, "", True
        if self.asked:  # what the first probe shows is in the summary
            self._announce(f"backend up: {self.address}")
        self._tell()

    async def _refresh_limits(self) -> None:
        """Ask now and then what the models of a server that is up can do: they may have been replaced."""
        if asyncio.get_running_loop().time() < self._limits_at + ASK_LIMITS:
            return
        try:
            found = await self._ask_limits()
        except Lost:  # the next probe tells whether it is away
            return
        if not self.up or found == self.limits:
            return
        if problem := self._check(found):
            self.lost(problem)
        else:
            self.limits = found
            self._tell()

    async def _ask_limits(self) -> dict[str, ModelLimits]:
        """Ask what its models can do.

        Raises:
            Lost: There is no answer.
        """
        self._limits_at = asyncio.get_running_loop().time()
        return {name: await self.connection.limits(model, ANSWER_IN) for name, model in self.models.items()}

    def _check(self, found: Mapping[str, ModelLimits]) -> str:
        """Return why one of its models cannot be served; empty if all can. Warn of other batching."""
        for name, limits in found.items():
            if limits.batches_itself is not None and limits.batches_itself != self.batches_itself:
                self.warn(_other_batching(self.models[name], self.address, self.batches_itself))
            if limits.problem:
                return limits.problem
        return ""


def _other_batching(model: str, address: str, wanted: bool) -> str:
    """Say that a server should batch by itself and does not, or the other way round."""
    if wanted:
        return (
            f"{model} on {address} has no dynamic batching: it executes the requests of a batch one by one; "
            "put dynamic_batching with a delay of 1 ms into its config.pbtxt"
        )
    return (
        f"{model} on {address} has dynamic batching of its own, which delays the dispatcher's batches; take "
        "dynamic_batching out of its config.pbtxt"
    )
