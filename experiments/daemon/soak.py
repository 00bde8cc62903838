"""Two live servers under changing load, kept by the daemon for a thousand decisions.

A Triton and a TensorFlow Serving (or its stand-in) serve clients whose load goes up and down, the one's up
while the other's is down. How far up is found first: to where the default no longer keeps the SLO throughout.
Then each of several configurations stands still for a whole turn of the load: the default, and the candidates
for the best one in hindsight. Then the daemon keeps both, beginning with the default and knowing nothing.
Last, the default and the best stand still again, so that what the machine does meanwhile is seen and the best
of several short turns is not taken for better than it is. The clients are the judges: a short window counts
as kept if the mean latency of the requests meant to be sent in it is within the SLO and none failed. The
daemon reads the same latency through a stand-in for a gateway's metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from tuner.adapters.embedded.server import EmbeddedServer
from tuner.adapters.tfserving.embedded import EmbeddedTFServing, TFServingOptions
from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.experiments.daemon.clients import (
    PHASE,
    SLO,
    WINDOW,
    Clients,
    SloShare,
    load_until_it_breaks,
    serve,
)
from tuner.experiments.daemon.file import daemon_file
from tuner.experiments.daemon.gateway import mean_latency, serve_latency
from tuner.experiments.daemon.memory import growth, resident
from tuner.experiments.daemon.process import DaemonProcess, wait_until
from tuner.experiments.daemon.servers import SERVERS, Kept
from tuner.experiments.frame.experiment import Answers, Scaled, SequentialExperiment, experiment
from tuner.experiments.frame.result import Row, row
from tuner.knobs import Configuration
from tuner.profiler.attachment import Attachment, attach
from tuner.profiler.load.generator import LoadGenerator
from tuner.setting import Load

__all__ = ["DaemonSoak", "compared"]

IDLE, DRAINED = 5.0, 40.0
"""requests/s between two configurations, and how long a queue may take to be served, s."""
SHARED = TFServingOptions(batch_threads=1)
"""Two servers share the processors. With as many batches at a time as there are processors, batching gains
nothing here: every configuration breaks the SLO at the same load."""
GOAL = "strict"
"""What the daemon minimises: windows that break the SLO now and then count, even if the rest is fast."""
Benches = Sequence[tuple[Kept, Attachment, Clients]]
"""The servers, and how they are reached."""
DECISIONS, GROWTH, MARGIN = 1000, 5.0, 2.0
"""Decisions asked for, most growth of memory in %, and points below the best static configuration."""


class Soaked(NamedTuple):
    """What the soak came to."""

    rows: list[Row]
    rates: list[tuple[float, float]]
    """Low and high load of each server, requests/s."""
    details: dict[str, Any]


@experiment(
    name="daemon-soak",
    title="Two live servers under changing load, kept by the daemon for a thousand decisions",
    minutes=24,
    repeated=False,
    live=True,
)
class DaemonSoak(SequentialExperiment[Soaked]):
    """Measures what stands still, then the daemon, then again what stands still."""

    again = Scaled(2, quick=1)
    """Turns of the load for which the default and the best stand still again."""
    minutes = Scaled(13.0, quick=2.5)
    standing = Scaled(len(SERVERS[0].statics), quick=3)
    """Configurations that stand still."""

    def proceed(self) -> Soaked:
        with _benches() as benches:
            clients = [client for _, _, client in benches]
            default = [0] * len(benches)
            _set(benches, default)
            load_until_it_breaks(clients, self.report)
            numbers = self.track(range(self.standing), "configurations that stand still")
            before = [self._still(benches, [number] * len(benches), 1) for number in numbers]
            best = [_best(shares) for shares in zip(*before, strict=True)]  # number by server
            _set(benches, default)
            with _daemon(benches) as daemon:
                shares, memory = keep(clients, daemon, 60 * self.minutes, self.report)
                rows = _counted(daemon, memory)
                lost = [_lost(daemon, kept.name, share) for kept, share in zip(SERVERS, shares, strict=True)]
            default_after, best_after = (self._still(benches, some, self.again) for some in (default, best))
        for server, (kept, share) in enumerate(zip(SERVERS, shares, strict=True)):
            number = best[server]
            rows += compared(
                kept,
                share,
                default=before[0][server] + default_after[server],
                best=before[number][server] + best_after[server],
                which=kept.statics[number],
            )
        stood = [*before, default_after, best_after]
        details = {
            "memory": [round(value, 1) for value in memory],
            "statics": [[share.attainment for share in by_server] for by_server in stood],
            "lost": lost,
        }
        return Soaked(rows, [client.rates for client in clients], details)

    def rows(self, found: Answers[None, Soaked]) -> list[Row]:
        return found[None][0].rows

    def configuration(self) -> dict[str, Any]:
        return {"window": WINDOW, "slo": SLO, "objective": GOAL, "phase": PHASE, "minutes": self.minutes}

    def details(self, found: Answers[None, Soaked]) -> dict[str, Any]:
        (soaked,) = found[None]
        return soaked.details | {"rates": soaked.rates}

    def _still(self, benches: Benches, numbers: Sequence[int], turns: int) -> list[SloShare]:
        """Let each server run one of the configurations for some turns of the load; return what clients saw.

        Args:
            benches: The servers.
            numbers: Which of its configurations each of them runs.
            turns: Of the load.
        """
        _set(benches, numbers)
        shares = serve([client for _, _, client in benches], 2 * turns * PHASE)
        self.report(", ".join(f"{share.attainment:.0f} %" for share in shares) + " kept")
        return shares


def _best(shares: Sequence[SloShare]) -> int:
    """Return which kept the SLO most often; not the default among equals, for the load is its limit."""
    return max(range(len(shares)), key=lambda number: (shares[number].attainment, number > 0))


def _set(benches: Benches, numbers: Sequence[int]) -> None:
    """Have each server run one of the configurations that stand still, and no queue of before."""
    for number, (kept, attachment, client) in zip(numbers, benches, strict=True):
        client.load.set_rate(IDLE)
        attachment.backend.apply(Configuration(kept.statics[number]))
    time.sleep(2.0)  # the old instances live on for a while
    loads = [client.load for _, _, client in benches]
    wait_until(lambda: max(load.totals().outstanding for load in loads) <= 1, DRAINED)


def _counted(daemon: DaemonProcess, memory: Sequence[float]) -> list[Row]:
    """Return what the daemon did, and what it used."""
    decisions = daemon.rows("SELECT outcome FROM decision")
    changes = sum(found["outcome"] == "applied" for found in decisions)
    return [
        Row(id="decisions", measured=len(decisions), published=DECISIONS, note=f"{changes} changes applied"),
        row("growth of memory after warm-up", [growth(memory)], unit="%", published=GROWTH, note="below"),
        Row(id="memory at the end", measured=round(memory[-1], 1), unit="MiB"),
        Row(id="tracebacks", measured=len(daemon.said("Traceback")), published=0),
    ]  # fmt: skip


def _lost(daemon: DaemonProcess, name: str, share: SloShare) -> list[dict[str, Any]]:
    """Return the windows that broke the SLO, each with what the daemon had decided last."""
    query = (
        "SELECT decision.time, action, reason, decision.configuration FROM decision "
        "JOIN target ON target.id = target WHERE name = ? AND outcome = 'applied' ORDER BY decision.time"
    )
    changes = daemon.rows(query, name)
    found = []
    for lost in share.lost:
        before = [change for change in changes if change["time"] <= lost.time + WINDOW]
        entry = {"ms": round(1e3 * lost.latency, 1), "rate": lost.rate, "failed": lost.failed}
        if before:
            last = before[-1]
            entry |= {"ago": round(lost.time + WINDOW - last["time"], 1), "action": last["action"]}
            entry |= {"configuration": last["configuration"], "reason": last["reason"]}
        found.append(entry)
    return found


def keep(
    clients: Sequence[Clients], daemon: DaemonProcess, seconds: float, report: Callable[[str], None]
) -> tuple[list[SloShare], list[float]]:
    """Let the daemon keep both; return what clients saw, and its memory over time, MiB."""
    wait_until(lambda: bool(daemon.rows("SELECT id FROM window LIMIT 1")), 60, every=0.1)
    memory: list[float] = []
    reported = [time.monotonic()]

    def watch() -> None:
        memory.append(resident(daemon.usage))
        if time.monotonic() - reported[0] > 60:
            reported[0] = time.monotonic()
            decisions = len(daemon.rows("SELECT id FROM decision"))
            seen = ", ".join(f"{c.kept.name} {c.share.attainment:.1f} %" for c in clients)
            report(f"{decisions} decisions, {memory[-1]:.0f} MiB, kept so far: {seen}")

    return serve(clients, seconds, watch), memory


def compared(
    kept: Kept, share: SloShare, *, default: SloShare, best: SloShare, which: Mapping[str, float]
) -> list[Row]:
    """Return the daemon's share beside those of the default and of the best that stood still."""
    text = ", ".join(f"{name} {value:g}" for name, value in which.items())
    return [
        Row(
            id=f"{kept.name}: SLO attainment",
            published=round(best.attainment - MARGIN, 2),
            measured=round(share.attainment, 2),
            unit="%",
            note=f"target: at least the best static one ({text}: {best.attainment:.1f} %) minus {MARGIN:g}",
        ),
        Row(
            id=f"{kept.name}: SLO attainment against the default's",
            published=round(default.attainment, 2),
            measured=round(share.attainment, 2),
            unit="%",
            note="target: above",
        ),
        Row(
            id=f"{kept.name}: failed requests",
            published=0,
            measured=share.failed,
            note=f"of {share.sent:,} while the daemon kept it",
        ),
    ]


@contextmanager
def _benches() -> Iterator[Benches]:
    """Start both servers and their clients."""
    with ExitStack() as opened:
        found = []
        servers: list[EmbeddedServer] = [EmbeddedTriton(), EmbeddedTFServing(options=SHARED)]
        for kept, server in zip(SERVERS, servers, strict=True):
            opened.enter_context(server)
            attachment = opened.enter_context(attach(server.target, load=Load(rate=kept.rates[0])))
            assert isinstance(attachment.load, LoadGenerator)
            found.append((kept, attachment, Clients(kept=kept, load=attachment.load)))
        time.sleep(3.0)  # the first requests of a fresh server are slow
        yield found


@contextmanager
def _daemon(benches: Benches) -> Iterator[DaemonProcess]:
    """Run the daemon in its own process; it reads the latency that the clients measure."""
    with serve_latency({kept.name: client.load for kept, _, client in benches}) as gateway:
        targets = [
            {
                "name": kept.name,
                "url": attachment.description.target,
                "mode": "apply",
                "slo": f"mean={SLO * 1e3:g}ms",
                "objective": GOAL,
                "window": f"{WINDOW:g}s",
                "sli": {"prometheus": gateway, "query": mean_latency(kept.name)},
                "knobs": kept.knobs,
            }
            for kept, attachment, _ in benches
        ]
        with daemon_file(targets, serve=True) as path, DaemonProcess(path) as daemon:
            yield daemon
