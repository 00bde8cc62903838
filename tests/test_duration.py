"""Durations and latencies as people read them."""

from __future__ import annotations

import math

import pytest

from tuner.duration import format_duration, format_latency, format_ms, parse_duration
from tuner.errors import InvalidInput


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0ms"), (0.002, "2ms"), (0.01234, "12.3ms"), (6.031, "6.03s"), (math.nan, "-")],
)
def test_durations_have_the_unit_that_reads_best(seconds: float, text: str) -> None:
    """Three digits are enough for people."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("latency", "cut_off", "text", "ms"),
    [
        (6.031, 6.031, "over 6s", "over 6,000"),
        (12.52, 12.52, "over 12s", "over 12,000"),
        (0.5399, 0.5399, "over 530ms", "over 530"),
        (0.030, 6.031, "30ms", "30.0"),
        (6.031, math.nan, "6.03s", "6,031.0"),
        (math.nan, 6.031, "-", "–"),
    ],
)
def test_a_latency_that_was_cut_off_is_a_lower_bound(
    latency: float, cut_off: float, text: str, ms: str
) -> None:
    """It may be far more than the window could show: two digits, rounded down."""
    assert format_latency(latency, cut_off) == text
    assert format_ms(latency * 1e3, cut_off * 1e3) == ms


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("100ns", 1e-7),
        (" 1500ns ", 1.5e-6),
        ("0.5us", 5e-7),
        ("0.0001ms", 1e-7),
        ("1.0004ms", 0.0010004),
        ("1ms500ns", 0.0010005),
        ("1ms100ns", 0.0010001),
        ("0", 0.0),
        ("500us", 0.0005),
        ("3µs", 3e-6),
        ("2ms", 0.002),
        ("1m30s", 90.0),
    ],
)
def test_small_durations_are_not_rounded(text: str, seconds: float) -> None:
    """What cannot have them says so; it would not know of a 0 that it was something else."""
    assert parse_duration(text, "--knob") == seconds


@pytest.mark.parametrize("text", ["-100ns", "-0.0001ms", "-2ms"])
def test_small_negative_durations_are_refused(text: str) -> None:
    """They are not taken for 0."""
    with pytest.raises(InvalidInput, match="is negative"):
        parse_duration(text, "--knob")
