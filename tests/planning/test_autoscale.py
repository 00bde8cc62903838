"""Advice on the number of accelerators."""

from __future__ import annotations

import pytest

from tuner.planning.autoscale import ScalingRule, metric_text


@pytest.mark.parametrize(
    ("accelerators", "bad_rate", "idle", "desired"),
    [(10, 0.0, 0.05, 10), (10, 0.009, 0.0, 10), (10, 0.2, 0.0, 13), (10, 1.0, 0.0, 40), (10, 0.0, 1.0, 1)],
)
def test_the_paper_s_formulas(accelerators: int, bad_rate: float, idle: float, desired: int) -> None:
    """N r / (1 - r) more if the bad rate is high; fewer by the idle part but for the headroom."""
    rule = ScalingRule(most=40)

    assert rule.advise(accelerators=accelerators, bad_rate=bad_rate, idle=idle).desired == desired


def test_advice_agrees_with_a_flat_top() -> None:
    """From any number the right one is found in one step, if the scheduler keeps the flat top."""
    rule, needed = ScalingRule(headroom=0.0), 50
    for accelerators in (20, 40, 60, 200):
        bad, idle = max(1 - accelerators / needed, 0.0), max(1 - needed / accelerators, 0.0)

        assert rule.advise(accelerators=accelerators, bad_rate=bad, idle=idle).desired == needed


def test_the_gauge_is_text_that_prometheus_reads() -> None:
    """With a label that names the cluster."""
    from prometheus_client.parser import text_string_to_metric_families

    (family,) = text_string_to_metric_families(metric_text(12, 'a "b"'))

    assert family.name == "servetune_desired_accelerators"
    assert (family.samples[0].labels, family.samples[0].value) == ({"cluster": 'a "b"'}, 12.0)


def test_mistakes_are_refused() -> None:
    """A threshold of 1 would never be passed."""
    with pytest.raises(ValueError, match="must hold"):
        ScalingRule(threshold=1.0)
