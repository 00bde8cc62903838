"""Forms of RRL with a table: the paper's, that of its authors' code, and plain Q-learning.

``rrl_paper`` is Qin et al., SC'19, equations 1 to 3 and algorithm 1. Q starts at 1/|C|; estimates weigh as
much as measurements; ``a_t = t ** -0.8`` per state and configuration, because theorem 4.1 needs rates whose
sum is infinite and whose sum of squares is finite; beta is in units of one over the cost; the network of
section 5.1 is anchored at the measurement. beta and gamma are not published. Our beta grows slowly, because
exploration has to end within the windows there are.

``rrl_code`` is the authors' published code, which differs from the text: one table for all loads, no future,
Q starts at the first cost measured, a = 0.3, delta = 3, a softmax over one over Q, a network that learns
milliseconds under a Huber loss and is trained from scratch in every window, FTRL at a rate of 0.7. We take
over what the code says of the learner; the first weights of the network and the start of FTRL are ours.

``q_learning`` is delta 0 of the paper's Fig. 11: a region of one point and no estimation function. Table,
learning rate, exploration and temperature are those of the table form, so that a comparison shows the region
and the estimation function alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.agents.rrl.network.estimator import EstimatorParameters
from tuner.agents.rrl.table.parameters import TableParameters

__all__ = ["CODE", "PAPER", "PRESETS", "Q_LEARNING"]

PAPER = TableParameters(
    delta=1.0,
    gamma=0.5,
    estimate_weight=1.0,
    rate_exponent=0.8,
    temperature="absolute",
    beta_first=4.0,
    beta_growth=1.02,
    beta_last=100.0,
    optimism=1.0,
    carry=False,
    noise=0.0,
)
CODE = TableParameters(
    delta=3.0,
    learning_rate=0.3,
    estimate_weight=1.0,
    temperature="inverse",
    q0="first",
    optimism=1.0,
    carry=False,
    shared_table=True,
    noise=0.0,
    estimator=EstimatorParameters(
        learning_rate=0.7,
        label="ms",
        anchored=False,
        huber=100.0,
        from_scratch=True,
        steps=100,
        minimum_samples=1,
    ),
)
NEVER = EstimatorParameters(hidden=(1,), minimum_samples=2**31, memory=1)
"""Of an estimation function that is never trained: every configuration is taken to cost what was measured."""
Q_LEARNING = TableParameters(delta=0.0, carry=False, estimator=NEVER)

PRESETS: Mapping[str, TableParameters] = {"rrl_paper": PAPER, "rrl_code": CODE, "q_learning": Q_LEARNING}
"""Parameters by agent name."""
