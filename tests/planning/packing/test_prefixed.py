"""Sessions that share a prefix as one load."""

from __future__ import annotations

import numpy as np

from tests.planning.packing.builders import line
from tuner.planning.packing.prefixed import prefix_load

PREFIX = np.array([0.0, 10.0, 11.0, 12.0, 13.0]) / 1e3


def test_a_batch_takes_the_prefix_once_and_every_suffix() -> None:
    """Three quarters of a batch of four are the first's; a batch of one has the longer suffix."""
    first, second = line("a", 30.0, memory=2.0), line("b", 10.0, memory=3.0, beta=0.02)

    found = prefix_load("body", PREFIX, [first, second], memory=90.0)

    assert (found.rate, found.memory, found.budget) == (40.0, 95.0, 0.1)
    np.testing.assert_allclose(found.latency[1:], [0.032, 0.011 + 0.036, 0.012 + 0.038, 0.013 + 0.038])


def test_shares_of_a_batch_are_rounded_up_and_no_further() -> None:
    """25 * 0.28 is above 7 in floating point, but 7 requests of the first are enough. A rare one has one."""
    prefix = np.zeros(26)

    often = prefix_load("body", prefix, [line("a", 7.0), line("b", 18.0)])
    rare = prefix_load("body", prefix, [line("a", 30.0), line("b", 1e-9)])

    assert often.latency[25] == (0.002 * 7 + 0.01) + (0.002 * 18 + 0.01)
    assert rare.latency[2] == (0.002 * 2 + 0.01) + (0.002 * 1 + 0.01)


def test_batches_end_where_a_suffix_is_no_longer_known_or_the_time_is_over() -> None:
    """What is longer than the budget is not kept, but for a batch of one."""
    assert len(prefix_load("body", PREFIX, [line("a", 1.0, slo=0.025)]).latency) == 1 + 2
    assert len(prefix_load("body", PREFIX + 1.0, [line("a", 1.0, slo=0.03)]).latency) == 1 + 1


def test_a_session_without_requests_takes_no_part_of_a_batch() -> None:
    """Neither time nor memory; if no session has any, the load is that of equal shares, at a rate of 0."""
    asked, idle = line("a", 30.0, memory=2.0), line("b", 0.0, memory=3.0, beta=0.05)

    found, alone = (
        prefix_load("body", PREFIX, suffixes, memory=90.0) for suffixes in ([asked, idle], [asked])
    )

    np.testing.assert_array_equal(found.latency, alone.latency)
    assert (found.rate, found.memory) == (30.0, 92.0)
    assert prefix_load("body", PREFIX, [idle, idle], memory=90.0).memory == 96.0
