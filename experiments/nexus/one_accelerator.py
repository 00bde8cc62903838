"""What Figures 5 and 9 of Nexus share: one model of any batching on one accelerator that could do 500/s.

The SLO is 100 ms. An accelerator that works without a pause keeps it with batches of up to l(b) = 50 ms,
for a request may have to wait for the batch before. The optimum of 500 requests/s fixes beta for each
alpha: 25 requests in 50 ms, so ``beta = 50 - 25 alpha`` ms.
"""

from __future__ import annotations

from typing import Any

from tuner.cluster import Scenario, Session

__all__ = ["ALPHAS", "BATCH", "OPTIMUM", "SLO", "scenario"]

SLO = 100.0
"""ms"""
OPTIMUM = 500.0
"""requests/s"""
BATCH = 25
"""``OPTIMUM * SLO / 2``."""
ALPHAS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8)
"""ms"""


def scenario(
    alpha: float,
    drop: str,
    *,
    rate: float = OPTIMUM,
    arrival: str = "poisson",
    cap: str = "planned",
    seconds: float = 10.0,
    seed: int = 0,
) -> Scenario:
    """Return the accelerator under a drop rule of Nexus.

    Args:
        alpha: ms per request of a batch.
        drop: ``early`` or ``lazy``, as in `batching.nexus`; or ``missed``: lazy to the letter of
            the paper, only what has missed its deadline is dropped, and the oldest of the others sets the
            batch, which is one if it is too late for any (Clipper's rule; no cap).
        rate: requests/s
        arrival: ``poisson`` or ``constant``.
        cap: Largest batch: the ``planned`` of 25, or ``profile``: as large as deadlines allow.
        seconds: Measured.
        seed: Of the arrivals.
    """
    policy = "clipper" if drop == "missed" else "nexus"
    options: dict[str, Any] = {"placement": [[(0, BATCH, 1.0)]], "drop": drop, "cap": cap}
    if policy == "clipper":
        options = {"sizing": "budget"}
    session = Session(
        name="model",
        alpha_ms=alpha,
        beta_ms=SLO / 2 - BATCH * alpha,
        slo_ms=SLO,
        rate=rate,
        arrival=arrival,
    )
    return Scenario(
        policy=policy, options=options, accelerators=1, sessions=(session,), seconds=seconds, seed=seed
    )
