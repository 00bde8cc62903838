"""Arrival processes as text, which command lines and files use.

========================  ==============================================================
``poisson:200``           exponential gaps; index of dispersion 1
``gamma:0.5:200``         gamma distributed gaps of that shape; dispersion tends to 1/shape
``constant:100``          equal gaps; dispersion 0
``step:30s@100,1m@300``  Poisson, the rate changes in steps; the last rate goes on
``ramp:60s@100-300``      Poisson, the rate grows (or falls) linearly; the last rate goes on
``trace:FILE``            send times from a file, counted from the first
========================  ==============================================================
"""

from __future__ import annotations

from pathlib import Path

from tuner.duration import parse_duration
from tuner.errors import InvalidInput
from tuner.workload.arrivals import SETTING, Arrival, Constant, Gamma, Poisson, Ramp, Steps
from tuner.workload.trace import Trace

__all__ = ["parse_arrival"]


def parse_arrival(text: str) -> Arrival:
    """Return the arrival process that a text describes.

    Args:
        text: Such as ``poisson:200``.

    Raises:
        InvalidInput: Unknown kind, unusable number, or unreadable trace.
    """
    kind, _, rest = text.strip().partition(":")
    if kind == "poisson":
        return Poisson(_number(rest, text))
    if kind == "constant":
        return Constant(_number(rest, text))
    if kind == "gamma":
        shape, _, rate = rest.partition(":")
        return Gamma(_number(shape, text), _number(rate, text))
    if kind == "step":
        return Steps(tuple(_step(part, text) for part in rest.split(",")))
    if kind == "ramp":
        seconds, _, rates = rest.partition("@")
        first, _, last = rates.partition("-")
        return Ramp(parse_duration(seconds, SETTING), _number(first, text), _number(last, text))
    if kind == "trace" and rest:
        return Trace(Path(rest))
    raise InvalidInput(
        SETTING,
        f"'{text}' is not an arrival process",
        "write poisson:200, gamma:0.5:200, constant:100, step:30s@100,1m@300, ramp:60s@100-300 or trace:FILE",
    )


def _step(part: str, text: str) -> tuple[float, float]:
    seconds, _, rate = part.partition("@")
    return parse_duration(seconds, SETTING), _number(rate, text)


def _number(part: str, text: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise InvalidInput(
            SETTING, f"'{part}' in '{text}' is not a number", "write it like poisson:200"
        ) from None
