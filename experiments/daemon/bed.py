"""The test bed of the faults: a live server behind proxies that can fail, its clients, and a daemon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.control.store.order_book import pin, unpin
from tuner.control.store.rows import configuration_of
from tuner.control.store.store import Store
from tuner.errors import AdapterError, TunerError
from tuner.experiments.daemon.file import daemon_file
from tuner.experiments.daemon.process import DaemonProcess, wait_until
from tuner.knobs import Configuration
from tuner.profiler.load.generator import LoadGenerator
from tuner.testing.proxy import Proxy

__all__ = ["GRIDS", "TARGET", "Bed", "open_bed"]

TARGET = "mlp"
RATE = 40.0
"""requests/s: the machine is shared with the daemon and whoever else uses it."""
GRIDS: dict[str, tuple[float, ...]] = {
    "max_batch_size": (1, 2, 4, 8),
    "max_queue_delay": (0.0, 0.002, 0.005),
    "instances": (1, 2),
}
RESTLESS = {"patience": 100_000, "budget": 1, "reloads_per_hour": 100_000}
"""A guard that goes on searching, so that changes are under way again and again."""


@dataclass(kw_only=True)
class Bed:
    """A server, its network, its clients and its daemon: all that faults are injected into."""

    window: float
    """Length of a window, s."""
    server: EmbeddedTriton
    grpc: Proxy
    """Between the daemon and the server's gRPC port."""
    metrics: Proxy
    """Between the daemon and the server's metrics."""
    direct: TritonBackend
    """Reaches the server directly, without the proxies."""
    load: LoadGenerator
    """Clients, which also reach the server directly."""
    daemon: DaemonProcess

    def running(self) -> Configuration | None:
        """Return the configuration that the server runs; None while it does not answer."""
        try:
            return self.direct.current()
        except AdapterError:
            return None

    def explained(self) -> str:
        """Return the daemon's reason for the configuration that the server runs; empty if it has none."""
        found, seen = self.running(), self.daemon.seen(TARGET)
        same = self.direct.space.same
        if found is None or seen.running is None or not same(found, seen.running):
            return ""
        if seen.last_good is not None and same(found, seen.last_good):
            return "the last good configuration"
        for row in self.daemon.rows(
            "SELECT action, reason, configuration FROM decision WHERE outcome IN ('applied', 'interrupted') "
            "ORDER BY id DESC LIMIT 3"
        ):
            if same(configuration_of(row["configuration"]), found):
                return f"{row['action']}: {row['reason']}"
        events = self.daemon.rows("SELECT sentence FROM event ORDER BY id DESC LIMIT 1")
        return str(events[0]["sentence"]) if events else ""

    def open_decisions(self) -> int:
        """Return how many decisions have no end, although others were made after them."""
        rows = self.daemon.rows(
            "SELECT count(*) AS n FROM decision AS one WHERE outcome IN ('decided', 'applying') "
            "AND id < (SELECT max(id) FROM decision WHERE target = one.target)"
        )
        return int(rows[0]["n"]) if rows else 0

    def await_change(self, target: str = TARGET) -> bool:
        """Wait until a change is in progress; if none starts by itself, order one."""
        if wait_until(self.daemon.applying, 4 * self.window, every=0.003):
            return True
        with closing(Store(self.daemon.state, existing=True)) as store:
            running = self.running()
            other = 4.0 if running is None or running["max_batch_size"] != 4.0 else 2.0
            pin(store, target, {"max_batch_size": other})
            found = wait_until(self.daemon.applying, 3 * self.window, every=0.003)
            unpin(store, target)
        return found

    def serving(self, seconds: float = 0.5) -> bool:
        """Return whether clients are answered: no request of the next moments fails."""
        begun = time.monotonic()
        time.sleep(seconds)
        sample = self.load.sample(begun, begun + seconds)
        return bool(len(sample.intended)) and not sample.failed


@contextmanager
def open_bed(window: float, seed: int) -> Iterator[Bed]:
    """Start a server, clients and a daemon, and wait for its first windows.

    Raises:
        TunerError: One of them could not be started.
    """
    with ExitStack() as opened:
        server = opened.enter_context(EmbeddedTriton())
        grpc = opened.enter_context(Proxy(server.ports.grpc))
        metrics = opened.enter_context(Proxy(server.ports.metrics))
        direct = TritonBackend(server.target, GRIDS)
        opened.callback(direct.close)
        load = opened.enter_context(LoadGenerator(direct.endpoint(), f"poisson:{RATE}", seed=seed))
        target = {
            "name": TARGET,
            "url": f"triton://127.0.0.1:{grpc.port}/mlp?metrics={metrics.port}",
            "slo": "mean=200ms",
            "mode": "apply",
            "window": f"{window}s",
            "seed": seed,
            "knobs": GRIDS
            | {"max_queue_delay": [f"{1e3 * delay:g}ms" for delay in GRIDS["max_queue_delay"]]},
            "guard": RESTLESS,
        }
        path = opened.enter_context(daemon_file([target], serve=True))
        daemon = opened.enter_context(DaemonProcess(path))
        if not wait_until(lambda: daemon.seen(TARGET).window >= 3, 60 + 10 * window, every=0.1):
            raise TunerError("the daemon measures nothing: " + " | ".join(daemon.lines[-5:]))
        yield Bed(
            window=window,
            server=server,
            grpc=grpc,
            metrics=metrics,
            direct=direct,
            load=load,
            daemon=daemon,
        )
