"""Symphony's Figure 14: models whose rates change."""

from __future__ import annotations

from tuner.experiments.symphony.fig14 import MODELS, changing_sessions


def test_rates_change_with_the_seed_and_the_time() -> None:
    """All models have a rate at every step, and their sum is highest in the peak."""
    sessions, others = (changing_sessions(8, 60.0, seed) for seed in (0, 1))

    assert len({session.name for session in sessions}) == MODELS
    rates = [[rate for _, rate in session.rate] for session in sessions if isinstance(session.rate, tuple)]
    assert len(rates) == MODELS
    assert min(map(min, rates)) > 0
    totals = [sum(step) for step in zip(*rates, strict=True)]
    assert 7 / 12 <= totals.index(max(totals)) / len(totals) < 9 / 12
    assert sessions[0].rate != others[0].rate
