"""How RRL explores: the probability with which it chooses each configuration, given the perceived costs.

Qin et al., SC'19, section 4.2.2, eq. 3 (the Boltzmann policy): the probability of a configuration is
proportional to ``exp(-beta * Q(s, c))``. A small beta explores, a large one exploits.

Where we differ: the paper leaves beta open, and a beta that suits costs of 0.5 is too greedy for costs of 30.
By default beta is therefore in units of one over the least cost (``relative``). The authors' code has another
softmax, without a beta: over a constant divided by Q (``inverse``).
"""

from __future__ import annotations

import math

import numpy as np

from tuner.agents.rrl.parameters import FormParameters

__all__ = ["inverse_logits", "probabilities"]

CODE_NUMERATOR = 20e6
"""The authors' code: logits are this over Q in microseconds ..."""
CODE_LARGEST = 500.0
"""... and all of them are halved until none is larger than this."""
SHORTEST = 1e-6
"""Latencies below count as this much, s."""


def probabilities(
    values: np.ndarray, parameters: FormParameters, *, windows: int, scale: float
) -> np.ndarray:
    """Return the probability of each configuration (eq. 3).   # (n,).

    Args:
        values: Perceived costs of the configurations that may be chosen; an infinite one is never chosen, so
            that one at least is finite.   # (n,), n >= 1
        parameters: Temperature and beta.
        windows: Windows learned from at this load level; beta may grow with them.
        scale: The cost that a ``relative`` temperature refers to.
    """
    from scipy.special import softmax

    chances, tried = np.zeros(values.size), np.isfinite(values)
    costs = values[tried]
    if parameters.temperature == "inverse":
        logits = inverse_logits(np.maximum(costs * parameters.unit, SHORTEST))
    else:
        logits = -parameters.beta(windows) * (
            costs / scale if parameters.temperature == "relative" else costs
        )
    chances[tried] = softmax(logits)
    return chances


def inverse_logits(latencies: np.ndarray) -> np.ndarray:
    """Return the logits of the authors' code: 20e6 over the latency in microseconds, halved until <= 500.

    Args:
        latencies: Positive, s.   # (n,)

    Returns:
        The logits of a softmax.   # (n,)
    """
    logits = CODE_NUMERATOR / (latencies * 1e6)
    largest = float(logits.max())
    if largest > CODE_LARGEST:
        logits = logits / 2.0 ** math.ceil(math.log2(largest / CODE_LARGEST))
    return np.asarray(logits)
