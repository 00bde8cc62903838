"""How the total rate of a scenario is shared out among its sessions: equally, or by Zipf's law."""

from __future__ import annotations

import numpy as np

__all__ = ["shared_out", "zipf_exponent"]


def zipf_exponent(popularity: str) -> float:
    """Return the exponent of ``equal`` (0) or ``zipf:EXPONENT``; ValueError if it is neither."""
    form, _, rest = popularity.strip().partition(":")
    if form == "equal" and not rest:
        return 0.0
    try:
        exponent = float(rest)
    except ValueError:
        exponent = -1.0
    if form != "zipf" or not 0 <= exponent <= 10:
        raise ValueError(f"{popularity!r} is not known; write equal, or zipf:0.9 (an exponent from 0 to 10)")
    return exponent


def shared_out(rate: float, popularity: str, sessions: int) -> list[float]:
    """Return the rate of each session: the k-th has a share proportional to k**-exponent, requests/s."""
    weights = np.arange(1, sessions + 1) ** -zipf_exponent(popularity)
    rates: list[float] = (rate / weights.sum() * weights).tolist()
    return rates
