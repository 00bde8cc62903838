"""Sends a batch as one request to its server, and gives each caller its part of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from tuner.dispatch.backends.connection import Doubtful, Lost
from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.pool.beliefs import LEAST_PATIENCE
from tuner.dispatch.pool.pending import Pending, traces_of
from tuner.dispatch.pool.sending.lanes import Batch
from tuner.dispatch.pool.sending.sender import Sender
from tuner.dispatch.pool.sending.tensors import Indivisible, merge, split
from tuner.dispatch.request import Refused, Reply, Status
from tuner.dispatch.tracing import note_sent

__all__ = ["ProxySender"]

STOOD_STILL = 0.01
"""s by which a timer is late only if our own process got no processor, or had much else to do."""


class ProxySender(Sender):
    """The way of batches through the dispatcher."""

    enough = 3  # it has answered the very requests that were refused

    async def _carry(self, batch: Batch, requests: Sequence[Pending]) -> None:
        """Send the requests as one; answer them, or let them go elsewhere."""
        server, stream = batch.lane.server, batch.stream
        counts = [one.items for one in requests]
        like, inputs = requests[0].request, merge([one.request for one in requests])
        loop = asyncio.get_running_loop()
        began = loop.time()
        if traces := traces_of(requests):
            like = like._replace(trace=note_sent(traces, began, server.address, batch.items)[0])
        call = loop.create_task(server.connection.infer(server.models[stream.session.name], like, inputs))
        if not await _ends(call, self._beliefs.patience(server, stream, batch.items)):
            call.add_done_callback(partial(self._learn_late, batch, requests, began))
            server.give_up(call)
            server.lost(f"{server.address} did not answer a batch in time")
            self._elsewhere(requests, server.reason)
            return
        try:
            reply = call.result()
            outputs = split(reply.outputs, counts) if stream.takes_items else [reply.outputs]
        except Lost as error:
            server.lost(str(error))
            self._elsewhere(requests, str(error))
        except Refused as refused:
            batch.lane.accelerator.free = loop.time()
            if isinstance(refused, Indivisible):
                server.warn(_executed_again(batch, refused.reason))
            if await self._stays(server, refused):
                await self._one_by_one(batch, requests, refused)
            else:
                self._elsewhere(requests, server.reason)
        else:
            for one, part in zip(requests, outputs, strict=True):
                one.answer(Reply(part, reply.version))
            self._learn(batch, requests, _worked(batch, began))

    def _learn_late(
        self, batch: Batch, requests: Sequence[Pending], began: float, call: asyncio.Task[Reply]
    ) -> None:
        """Learn from a batch that was given up, if it was answered: nothing else shows how long they take."""
        if not call.cancelled() and call.exception() is None:
            self._teach(batch, requests, _worked(batch, began))

    async def _stays(self, server: WatchedServer, refused: Refused) -> bool:
        """Return whether a server is there that refused a batch; a request alone takes none out.

        One that ends says of a batch what a model may say, too, that it is not available: a probe tells.
        """
        if not isinstance(refused, Doubtful):
            return True
        if refused.status is Status.UNAVAILABLE:
            return await server.doubted(refused.reason)
        server.doubt(refused.reason)
        return True

    async def _one_by_one(self, batch: Batch, requests: Sequence[Pending], refused: Refused) -> None:
        """Find out which request a server refused a batch for: no other one should suffer from it."""
        if len(requests) == 1:
            self._note_end(requests, refused.reason)
            batch.refused = True
            batch.lane.server.outlier.refused(batch.stream.session.name)
            if not await self._compared(batch, requests, refused.reason):
                requests[0].refuse(refused.status, refused.reason)
            return
        for one in requests:
            await self.send(Batch(batch.lane, batch.stream, [one]))


def _executed_again(batch: Batch, reason: str) -> str:
    """Say that the batches of a model are executed twice, and what to do about it."""
    server, name = batch.lane.server, batch.stream.session.name
    return (
        f"{server.models[name]} on {server.address} does not batch ({reason}), and executes the requests of "
        f"each batch again, one by one; give {name} max_batch: 0"
    )


async def _ends(call: asyncio.Task[Reply], patience: float) -> bool:
    """Wait for a batch for so long, s; return whether it has ended."""
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    await asyncio.wait((call,), timeout=patience)
    if not call.done() and loop.time() > until + STOOD_STILL:
        # Its answer may have come meanwhile, and takes some turns of the loop to reach us.
        await asyncio.wait((call,), timeout=LEAST_PATIENCE)
    return call.done()


def _worked(batch: Batch, began: float) -> float:
    """Return how long a server worked on a batch that it has just answered, s.

    Args:
        batch: The batch; that its lane is free now is noted.
        began: When it was sent, s.
    """
    now, accelerator = asyncio.get_running_loop().time(), batch.lane.accelerator
    # It began when it was there, or when the one before had ended, whose answer came the same way.
    earliest = max(began + batch.lane.server.round_trip, accelerator.free)
    accelerator.free = now
    return max(now - earliest, 1e-6)
