"""Small mixed clusters: a fast, dear type and a slow, cheap one."""

from __future__ import annotations

from typing import Any

import numba

from tuner.cluster.mixed import MixedCluster

PLAIN = bool(numba.config.DISABLE_JIT)
"""Without compilation simulations are a hundred times slower, and kept shorter."""
CATALOGUE = [
    {"name": "fast", "price": 1.0, "max_count": 9, "profile": {"m": {"alpha_ms": 0.1, "beta_ms": 10}}},
    {"name": "slow", "price": 0.25, "max_count": 9, "profile": {"m": {"alpha_ms": 0.4, "beta_ms": 1}}},
]
"""The slow type keeps 150 ms up to 372 items."""


def mixed(policy: str = "kairos", fast: int = 1, slow: int = 2, **fields: Any) -> MixedCluster:
    """A cluster of one session; fields of the session and of the file are told apart by their names."""
    session = {"name": "s", "model": "m", "qos_ms": 150.0, "sizes": "gaussian:300,100"}
    session |= {
        name: fields.pop(name)
        for name in ("qos_ms", "rate", "sizes", "arrival", "quantile")
        if name in fields
    }
    file = {
        "policy": policy,
        "instances": [{"type": "fast", "count": fast}, {"type": "slow", "count": slow}],
        "catalogue": CATALOGUE,
        "sessions": [session],
        "queries": 150 if PLAIN else 4000,
        **fields,
    }
    return MixedCluster.model_validate(file)
