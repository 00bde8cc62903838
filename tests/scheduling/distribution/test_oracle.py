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


def test_an_instance_that_the_way_makes_late_at_the_largest_size_is_no_base() -> None:
    """9 items take the slow one 9 s, and 1 s more to get there: it is given the smallest within 9.5 s."""
    sizes = np.arange(10.0)
    session = SessionSpec(name="m", slo=9.5, latency=np.array([sizes, 0.8 * sizes]))  # s
    spec = ClusterSpec(sessions=[session], kinds=[0, 1], delays=Delays(control=1.0))

    trace = drive(build(spec), [(0.0, 0, 0)] * 4, items=[5, 9, 4, 6])

    assert [(now, c.accelerator, c.items) for now, c in trace.batches[:2]] == [(0.0, 1, 9), (0.0, 0, 4)]


def test_what_ends_exactly_in_time_does_so_however_its_sums_are_rounded() -> None:
    """0.01 + 0.02 + 0.07 s are 0.12 - 0.02, and a little more in floats: one item is for the slow one."""
    delays = Delays(control=0.01, data=0.02, response=0.02)
    latency = np.array([[0.0, 0.01, 0.02], [0.0, 0.07, 0.2]])
    assert 0.01 + 0.02 + 0.07 > 0.12 - 0.02

    def given_to(table: np.ndarray, *items: int) -> dict[int, int]:
        sessions = [SessionSpec(name="m", slo=0.12, latency=table)]
        spec = ClusterSpec(sessions=sessions, kinds=[0, 1], delays=delays)
        trace = drive(build(spec), [(0.0, 0, 0)] * len(items), items=items)
        return {command.accelerator: command.items for now, command in trace.batches if now == 0}

    assert given_to(latency, 1, 2) == {0: 2, 1: 1}
    assert given_to(latency[:, :2], 1, 1) == {0: 1, 1: 1}
