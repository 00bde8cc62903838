"""Symphony's Figure 14: models whose rates change."""

from __future__ import annotations

from tuner.cluster.epochs import EpochRecord
from tuner.experiments.symphony.fig14 import MODELS, after_no_advice, changing_sessions


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


def test_an_interval_is_judged_by_the_advice_before_it() -> None:
    """Its own advice follows from its own bad rate, and would leave out every bad one."""
    calm, overload, after = (
        EpochRecord(
            time=time,
            requests=100,
            bad=bad,
            accelerators=8,
            idle=0.0,
            desired=desired,
            loaded=0,
            planned=False,
        )
        for time, bad, desired in ((10.0, 0, 8), (20.0, 30, 12), (30.0, 0, 8))
    )

    assert after_no_advice((calm, overload, after, calm)) == [overload, calm]
