"""What the daemon costs: how lateness is counted."""

from __future__ import annotations

import pytest

from tuner.experiments.daemon.idle import WINDOW, lateness


def test_lateness_is_what_is_beyond_a_window() -> None:
    """Of each target for itself; a first window has none before it."""
    rows = [(1, 0.0), (1, WINDOW + 0.5), (1, 2 * WINDOW + 0.4), (2, 3.0), (2, 4.0 + WINDOW)]

    assert lateness(rows) == pytest.approx([0.5, 0.0, 1.0])
