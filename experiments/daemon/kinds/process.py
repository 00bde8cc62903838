"""Faults of the daemon's process: killed, stopped and frozen."""

from __future__ import annotations

import json
import signal
import time
from contextlib import closing

import numpy as np

from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.experiments.daemon.bed import GRIDS, Bed
from tuner.experiments.daemon.kinds.kind import expect, kind
from tuner.experiments.daemon.process import wait_until

__all__ = ["KINDS"]

PAIR = "pair"
"""The target of two replicas."""


@kind("kill -9 in the middle of an apply", promise="the next start asks the server how the change ended")
def _killed_in_apply(bed: Bed, rng: np.random.Generator) -> str:
    found = bed.await_change()
    time.sleep(rng.uniform(0, 0.05))
    bed.daemon.kill()
    left = bed.daemon.rows("SELECT id FROM decision WHERE outcome = 'applying'")
    bed.daemon.start()
    return "a change was under way" if found and left else "a change had just ended"


@kind("SIGTERM in a canary trial", promise="the trial is taken back, and its decision is interrupted")
def _stopped_in_a_trial(bed: Bed, rng: np.random.Generator) -> str:
    """For a while the daemon keeps two replicas, of which one tries a change when the daemon is stopped."""
    kept = bed.daemon.path.read_text()
    with EmbeddedTriton() as second, closing(TritonBackend(second.target, GRIDS)) as direct:
        bed.daemon.stop()
        direct.apply(bed.direct.current())
        bed.daemon.path.write_text(_of_both(kept, bed, second))
        bed.daemon.start()
        try:
            expect(
                wait_until(lambda: bed.daemon.seen(PAIR).window >= 1, 60), "two replicas were not measured"
            )
            found = bed.await_change(target=PAIR)
            tried = wait_until(lambda: bed.direct.current() != direct.current(), bed.window, every=0.01)
            time.sleep(rng.uniform(0.1, 0.5) * bed.window)
            code = bed.daemon.stop()
            rows = bed.daemon.rows("SELECT * FROM decision WHERE action != 'hold' ORDER BY id DESC LIMIT 1")
            same = bed.direct.current() == direct.current()
        finally:
            bed.daemon.stop()
            bed.daemon.path.write_text(kept)
            bed.daemon.start()
    expect(code == 0, f"exit code {code}")
    expect(same, "the replicas run two configurations")
    expect(
        not tried or (rows and rows[0]["outcome"] == "interrupted"), f"the decision is {rows[0]['outcome']}"
    )
    return "one replica had the change" if found and tried else "no trial was met"


def _of_both(file: str, bed: Bed, second: EmbeddedTriton) -> str:
    """Return the daemon's file with one target, which has the server and a second one as replicas."""
    content = json.loads(file)
    hosts = f"127.0.0.1:{bed.server.ports.grpc},127.0.0.1:{second.ports.grpc}"
    url = f"triton://{hosts}/mlp?metrics={bed.server.ports.metrics},{second.ports.metrics}"
    return json.dumps(content | {"targets": [content["targets"][0] | {"name": PAIR, "url": url}]})


@kind("daemon frozen", promise="the long window is measured as what it was")
def _daemon_frozen(bed: Bed, rng: np.random.Generator) -> str:
    seconds = rng.uniform(1, 3) * bed.window
    bed.daemon.signal(signal.SIGSTOP)
    time.sleep(seconds)
    bed.daemon.signal(signal.SIGCONT)
    return f"for {seconds:.1f} s"


KINDS = (_killed_in_apply, _stopped_in_a_trial, _daemon_frozen)
