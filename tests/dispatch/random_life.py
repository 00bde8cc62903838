"""Random lives of a dispatcher in virtual time: what clients, servers and operators can do to it.

A life draws everything from its seed: sessions and servers, how requests come and who gives up, how servers
fail and change, what operators reload and set. Far more goes wrong than in truth. It has chapters; each ends
with the faults. What must hold then is in `tests.dispatch.test_random_life`.

All randomness comes from `random.Random`, whose stream is the same in all versions of Python.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.dispatch.calls import reply_to
from tests.dispatch.clock import VirtualLoop
from tests.dispatch.fakes import MS, FakeServer
from tests.dispatch.random_config import NAMES, random_configuration
from tuner.dispatch.backends.connection import Connection, Lost, ModelLimits
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.grant import Ask, Ended
from tuner.dispatch.knobs import POLICIES, current, set_knobs
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.request import Refused, Reply, Request, Status, Tensor
from tuner.errors import InvalidInput

WIDTHS = (2, 3, 5)
ITEMS = (1, 1, 1, 2, 5, 8)
TIMEOUTS: dict[str, list[float | None]] = {
    "mixed": [None, 0.003, 0.02, 0.05, 0.2, 1.0, 5.0],
    "hurried": [0.003, 0.02, 0.05],
    "patient": [2.0, 5.0],
    "without": [None],
}
KNOB_VALUES = {
    "policy": range(len(POLICIES)),
    "deferral": (0.0, 0.3, 1.0),
    "batch_cap": (0, 1, 2, 8),
    "target_batch": (0, 1),
    "drop_rule": (0, 1, 2),
    "dispatch_order": (0, 1, 2),
    "max_batch": (1, 3, 8, 16),
    "queue": (1, 10, 1000),
}


def inputs_of(number: int, items: int, width: int) -> tuple[Tensor, ...]:
    """Return inputs by which a request is known again."""
    return (Tensor("x", "FP32", (items, width), struct.pack("<i", number) * items * width),)


@dataclass
class WildServer(FakeServer):
    """A server that refuses batches above its limit, and notes which items it executed."""

    executed: Counter[int] = field(default_factory=Counter)
    """Items, by the number of their request."""

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        items, width = inputs[0].shape
        largest = (await self.limits(model, 1.0)).max_batch
        if largest is not None and items > largest:
            raise Refused(Status.INVALID, f"{self.address}: at most {largest} items")
        reply = await super().infer(model, like, inputs)
        self.executed.update(struct.unpack(f"<{items * width}i", inputs[0].content)[::width])
        return reply

    def seconds(self, items: int) -> float:
        """Return how long it takes for so many items."""
        return self.alpha * items + self.beta


@dataclass
class Visitor:
    """A request, and what came of it."""

    session: str
    items: int
    came: float
    outcomes: list[str] = field(default_factory=list)
    """``ok``, ``withdrawn``, or the reason of a refusal."""


class Heard(Metrics):
    """The dispatcher's metrics; they say when a server is lost."""

    def __init__(self, clock: Callable[[], float], lost: Callable[[], None]) -> None:
        super().__init__(clock)
        self._has_lost = lost

    def switched(self, server: str, up: bool) -> None:
        super().switched(server, up)
        if not up:
            self._has_lost()


class Life:
    """A dispatcher with its servers, clients and operators.

    Args:
        random: Where everything comes from.
    """

    dispatcher: Dispatcher
    metrics: Metrics

    def __init__(self, random: Random) -> None:
        self._random = random
        self.servers = {f"{letter}:1": WildServer(f"{letter}:1") for letter in "abcde"}
        for server in self.servers.values():
            self._set_speed(server)
        self.visitors: dict[int, Visitor] = {}
        self.calls: set[asyncio.Task[None]] = set()
        self.losses: list[float] = []
        """When servers were lost, s."""
        self.calm = False
        """Whether nothing goes wrong now."""
        self.grants = random.random() < 0.3
        """Whether frontends send their requests themselves."""
        self._fixed = {"mode": "grants" if self.grants else "proxy", "instances": random.choice([1, 1, 2])}
        self._undo: list[Callable[[], None]] = []

    async def begin(self) -> None:
        """Start the dispatcher."""
        loop = asyncio.get_running_loop()
        self.metrics = Heard(loop.time, lambda: self.losses.append(loop.time()))
        self.dispatcher = Dispatcher(
            random_configuration(self._random, self._fixed), self._connect, self.metrics, lambda _: None
        )
        await self.dispatcher.start(1.0)

    async def chapter(self) -> None:
        """Let everything happen for some seconds; then the faults end."""
        random, loop = self._random, asyncio.get_running_loop()
        self.calm = False
        until = loop.time() + random.choice([0.5, 2.0, 5.0])
        works = [self._load(until, random.choice([5.0, 50.0, 300.0]))]
        if random.random() < 0.9:
            works.append(self._trouble(until))
        await asyncio.gather(*works)
        self.heal()
        self.calm = True

    def heal(self) -> None:
        """End all faults."""
        for server in self.servers.values():
            server.alive, server.stuck, server.unloaded, server.poison = True, False, False, b""
        while self._undo:
            self._undo.pop()()

    # What there is.

    def _set_speed(self, server: WildServer) -> None:
        server.alpha = self._random.choice([0.2, 1.0, 2.0]) * MS
        server.beta = self._random.choice([1.0, 4.0, 8.0]) * MS

    def _connect(self, targets: Sequence[str]) -> Connection:
        return self.servers[targets[0].split("/")[2]]

    # What clients do.

    def call(
        self, session: str, items: int = 1, width: int = 2, timeout: float | None = None
    ) -> asyncio.Task[None]:
        """Send a request; the task ends with it."""
        now, number = asyncio.get_running_loop().time(), len(self.visitors)
        visitor = self.visitors[number] = Visitor(session, items, now)
        due = None if timeout is None else now + timeout
        go = self._granted if self.grants else self._asked
        task = asyncio.ensure_future(self._visit(visitor, go(number, visitor, width, due)))
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        task.add_done_callback(lambda task: visitor.outcomes.extend(["withdrawn"] * task.cancelled()))
        return task

    async def _visit(self, visitor: Visitor, answer: Any) -> None:
        try:
            await answer
        except (Refused, Lost) as refused:
            visitor.outcomes.append(str(refused))
        else:
            visitor.outcomes.append("ok")

    async def _asked(self, number: int, visitor: Visitor, width: int, due: float | None) -> None:
        inputs = inputs_of(number, visitor.items, width)
        reply = await reply_to(self.dispatcher, Request(visitor.session, inputs, deadline=due))
        assert reply.outputs == (inputs[0]._replace(name="x-out"),)

    async def _granted(self, number: int, visitor: Visitor, width: int, due: float | None) -> None:
        """Send a request where it is granted; its frontend may be slow, or vanish."""
        random, loop = self._random, asyncio.get_running_loop()
        grant = await self.dispatcher.grant(Ask(visitor.session, visitor.items, str(width), due))
        try:
            await self._hesitate(0.05)
            began = loop.time()
            async with asyncio.timeout(grant.timeout + 0.5):
                server = self.servers[grant.backend.split("/")[2]]
                await server.infer(
                    grant.model, Request(grant.model, ()), inputs_of(number, visitor.items, width)
                )
            took = loop.time() - began
            await self._hesitate(0.05)
            grant.end(Ended(took))
        except Lost as lost:
            grant.end(Ended(lost=str(lost)))
            raise
        except Refused as refused:
            grant.end(Ended(loop.time() - began, status=refused.status))
            raise
        except TimeoutError:
            raise Refused(Status.DEADLINE, "the frontend has given up") from None
        finally:
            if not self.calm and random.random() < 0.02:  # its conversation ends later
                loop.call_later(random.choice([0.5, 5.0]), grant.end, Ended())
            else:
                grant.end(Ended())

    async def _hesitate(self, chance: float) -> None:
        if not self.calm and self._random.random() < chance:
            await asyncio.sleep(self._random.choice([0.01, 0.2, 1.0]))

    async def _load(self, until: float, rate: float) -> None:
        loop, random = asyncio.get_running_loop(), self._random
        timeouts = TIMEOUTS[random.choice(list(TIMEOUTS))]
        while loop.time() < until:
            names = NAMES if random.random() < 0.02 else self.dispatcher.sessions
            call = self.call(
                random.choice(names), random.choice(ITEMS), random.choice(WIDTHS), random.choice(timeouts)
            )
            if random.random() < 0.1:
                loop.call_later(random.choice([0.0, 0.005, 0.05, 0.5]), call.cancel)
            if random.random() < 0.8:
                await asyncio.sleep(random.expovariate(rate))

    # What happens to servers, and what operators do.

    async def _trouble(self, until: float) -> None:
        loop, random = asyncio.get_running_loop(), self._random
        acts = [self._fail, self._fail, self._slow, self._redeploy, self._pause, self.reload, self._set_knobs]
        while loop.time() < until:
            await asyncio.sleep(random.choice([0.0, 0.01, 0.1, 0.5]))
            await random.choice(acts)()

    async def _fail(self) -> None:
        random, server = self._random, self._random.choice(list(self.servers.values()))
        how = random.choice(["alive", "stuck", "unloaded", "poison"])
        setattr(server, how, struct.pack("<i", len(self.visitors)) if how == "poison" else how != "alive")
        asyncio.get_running_loop().call_later(random.choice([0.1, 1.0, 5.0]), self.heal)

    async def _slow(self) -> None:
        server = self._random.choice(list(self.servers.values()))
        alpha, beta = server.alpha, server.beta
        server.alpha, server.beta = 5 * alpha, beta + self._random.choice([10, 40, 100, 300]) * MS
        self._undo += [lambda: setattr(server, "alpha", alpha), lambda: setattr(server, "beta", beta)]

    async def _redeploy(self) -> None:
        server = self._random.choice(list(self.servers.values()))
        limits = ModelLimits(max_batch=self._random.choice([None, 1, 4, 16, 32]))
        server.limits_of = dict.fromkeys(NAMES, limits)
        if not self._undo:
            self._set_speed(server)

    async def _pause(self) -> None:
        """Our process gets no processor for a while."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.jumping.now += self._random.choice([0.01, 0.1, 1.0, 10.0])

    async def reload(self) -> None:
        """Go over to another configuration, if its servers come up."""
        async with self.dispatcher.changing:
            try:
                await self.dispatcher.reload(random_configuration(self._random, self._fixed), 1.0)
            except InvalidInput as refused:
                if "no backend is up" not in str(refused) and "is ending" not in str(refused):
                    raise

    async def _set_knobs(self) -> None:
        async with self.dispatcher.changing:
            names = [name for name in current(self.dispatcher.pools) if self._random.random() < 0.25]
            values = {
                name: float(self._random.choice(KNOB_VALUES[name.rpartition(".")[2]])) for name in names
            }
            await set_knobs(self.dispatcher.pools, values)
