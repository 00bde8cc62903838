"""The oracle, by hand; that it is a limit stands in `tests/cluster/test_distribution.py`."""

from __future__ import annotations

import numpy as np

from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.distribution.oracle import build
from tuner.testing.driver import drive


def test_the_largest_go_to_the_base_and_the_smallest_to_others_in_time() -> None:
    """Sent 1 s before, the slow one ends 4 items just within the SLO of 17 s; 5 it would end at 21."""
    sizes = np.arange(10.0)
    session = SessionSpec(name="m", slo=17.0, latency=np.array([4 * sizes, sizes]))  # s
    spec = ClusterSpec(sessions=[session], kinds=[0, 1], delays=Delays(control=1.0))

    trace = drive(build(spec), [(0.0, 0, 0)] * 4, items=[5, 9, 4, 6])

    assert [(now, c.accelerator, c.items, c.finish) for now, c in trace.batches] == [
        (0.0, 1, 9, 10.0),
        (0.0, 0, 4, 17.0),
        (10.0, 1, 6, 17.0),
        (17.0, 1, 5, 23.0),
    ]
