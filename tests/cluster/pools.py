"""Small pools for tests: instances of a fast, dear type and a slow, cheap one, and requests with sizes."""

from __future__ import annotations

from typing import Any

import numba

from tuner.cluster.scenario import Scenario

PLAIN = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]
"""Without compilation simulations are a hundred times slower, and kept shorter."""
CATALOGUE = [
    {"name": "fast", "price": 1.0, "max_count": 9, "profile": {"m": {"alpha_ms": 0.1, "beta_ms": 10}}},
    {"name": "slow", "price": 0.25, "max_count": 9, "profile": {"m": {"alpha_ms": 0.4, "beta_ms": 1}}},
]
"""The slow type meets 150 ms up to 372 items."""
SESSION_FIELDS = ("slo_ms", "rate", "sizes", "arrival", "quantile")


def pool(policy: str = "kairos", fast: int = 1, slow: int = 2, **fields: Any) -> Scenario:
    """Return a scenario of one session on instances; fields of the session and of the file differ in name."""
    session = {"name": "s", "model": "m", "slo_ms": 150.0, "sizes": "gaussian:300,100"}
    session |= {name: fields.pop(name) for name in SESSION_FIELDS if name in fields}
    file = {
        "policy": policy,
        "instances": [{"type": "fast", "count": fast}, {"type": "slow", "count": slow}],
        "catalogue": CATALOGUE,
        "sessions": [session],
        "requests": 150 if PLAIN else 4000,
        **fields,
    }
    return Scenario.model_validate(file)
