"""The models and instance types of the Kairos paper, as figures.

Prices are those of the paper's table 4, SLOs (its QoS targets) those of table 3, counts and profiles those of
its published code and measurements (github.com/boringlee24/hpdc23-kairos, MIT): alpha and beta are lines
through the mean times of requests of 10 to 1000 items.
"""

from __future__ import annotations

from functools import cache

from tuner.planning.pools.catalogue import InstanceType, Line

__all__ = ["BUDGET", "MODELS", "QUANTILE", "SLOS", "paper_catalogue"]

BUDGET = 2.5
"""$/h (section 7)."""
QUANTILE = 0.99
"""Share of the requests that must be answered within the SLO (section 7)."""
SLOS = {"ncf": 0.005, "rm2": 0.350, "wnd": 0.025, "mtwnd": 0.025, "dien": 0.035}
"""By model, s (table 3)."""
MODELS = tuple(SLOS)

INSTANCES = {
    "g4dn.xlarge": (0.526, 5),
    "c5n.2xlarge": (0.432, 6),
    "r5n.large": (0.149, 17),
    "t3.xlarge": (0.1664, 15),
}
"""Price in $/h and maximum count."""

PROFILES = {  # alpha in ms per item and beta in ms, in the order of INSTANCES
    "ncf": ((0.0018, 0.713), (0.00572, 0.168), (0.00635, 0.54), (0.013, 0.138)),
    "rm2": ((0.25746, 3.699), (0.3866, 2.597), (0.40093, 3.905), (0.88274, 2.827)),
    "wnd": ((0.00704, 2.341), (0.03177, 0.847), (0.03689, 1.688), (0.06178, 5.491)),
    "mtwnd": ((0.01021, 3.503), (0.04344, 0.923), (0.05009, 1.809), (0.07544, 8.644)),
    "dien": ((0.01238, 6.562), (0.07629, 0.525), (0.08178, 0.843), (0.12708, 7.675)),
}


@cache
def paper_catalogue() -> tuple[InstanceType, ...]:
    """Return the four EC2 types, each with the five models."""
    return tuple(
        InstanceType(
            name=name,
            price=price,
            max_count=count,
            profile={
                model: Line(alpha_ms=lines[column][0], beta_ms=lines[column][1])
                for model, lines in PROFILES.items()
            },
        )
        for column, (name, (price, count)) in enumerate(INSTANCES.items())
    )
