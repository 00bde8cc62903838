"""Nexus' Figure 13: applications whose load rises, swings and falls."""

from __future__ import annotations

import numpy as np
import pytest

from tests.experiments.quick import quick
from tuner.experiments.nexus.applications import APPLICATIONS, needs
from tuner.experiments.nexus.fig13 import (
    BUSY,
    FALL,
    QUIET,
    RISE,
    ChangingApplications,
    changing_sessions,
    load_along,
)


def test_applications_have_the_sessions_of_the_paper() -> None:
    """50 of the game and 20 of the cameras, which share the application's load by Zipf's law."""
    count = {one.name: needs(one).size for one in APPLICATIONS}

    assert (count["game"], count["traffic"]) == (50, 20)
    for one in APPLICATIONS:
        assert needs(one).sum() == pytest.approx(1.0)
        assert (np.diff(needs(one), axis=0) < 0).all()


def test_the_load_rises_swings_and_falls() -> None:
    """By the same factor for all applications on average; before and after it is quiet."""
    times, load = load_along(1000.0, 1)
    busy = (times >= 1000 * RISE) & (times < 1000 * FALL)

    assert (load[:, ~busy] == 1).all()
    assert load[:, busy].mean() == pytest.approx(BUSY / QUIET, rel=0.1)
    assert (np.ptp(load[:, busy], axis=1) > 0.3).all()
    assert not np.array_equal(load, load_along(1000.0, 2)[1])


def test_the_cluster_follows() -> None:
    """More accelerators while there is more load, and few requests lost."""
    rows = {one.id: one.measured for one in quick(ChangingApplications).run().rows}

    before, during = (rows[f"accelerators {name} the higher load"] for name in ("before", "during"))
    assert before is not None
    assert during is not None
    assert before < during
    assert rows["late or dropped"] is not None
    assert rows["late or dropped"] < 5


def test_every_session_has_a_rate_at_all_times() -> None:
    """Each with a name of its own."""
    sessions = changing_sessions(10, 100.0, 1)

    assert (
        len({one.name for one in sessions}) == len(sessions) == sum(needs(one).size for one in APPLICATIONS)
    )
    assert all(rate > 0 for one in sessions if isinstance(one.rate, tuple) for _, rate in one.rate)
