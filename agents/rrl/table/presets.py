"""RRL as the paper writes it, as its authors coded it, and as we ship it.

``rrl_paper`` is Qin et al., SC'19: equations 1 to 3 and algorithm 1. Q starts at 1/|C|, estimates are not
told apart from measurements, ``a_t = t ** -0.8`` per state and configuration (the sum is infinite, that of
squares finite), beta in units of one over the cost, the network of section 5.1 anchored at the measurement.
beta and gamma are not published; ours grows slowly, as few windows as there are must end somewhere.

``rrl_code`` is the form of the authors' published code, which differs from the text: one table for all loads,
no future, Q starts at the first cost measured, a = 0.3, delta = 3, a softmax over one over Q, a network that
learns milliseconds under a Huber loss and is trained from scratch in every window, FTRL at a rate of 0.7.
Only what the code says of the learner is taken over; the start of the weights and of FTRL are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from tuner.agents.constants import changed
from tuner.agents.rrl.network.estimator import EstimatorParameters
from tuner.agents.rrl.parameters import SMOOTH_ONLY, TABLE_ONLY, RRLParameters
from tuner.errors import InvalidInput

__all__ = ["PARAMETERS", "PRESETS", "TABLE", "preset", "rrl_changed"]

PARAMETERS = TypeAdapter(RRLParameters)
"""Reads and writes parameters as plain values."""

TABLE = RRLParameters(perception="table", beta_first=2.0, beta_growth=1.25, beta_last=40.0)
"""The paper's table with our answers to what the paper leaves open: what others are built on."""
PAPER = RRLParameters(
    perception="table",
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
CODE = RRLParameters(
    perception="table",
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
PRESETS: Mapping[str, RRLParameters] = {"rrl": RRLParameters(), "rrl_paper": PAPER, "rrl_code": CODE}
"""Parameters by agent name."""


def preset(name: str, changes: Mapping[str, Any] | None = None) -> RRLParameters:
    """Return the parameters of one form of RRL, with some of them changed.

    Args:
        name: One of :data:`PRESETS`.
        changes: New values by field; those of ``levels`` and ``estimator`` are mappings themselves.

    Raises:
        InvalidInput: A field is unknown or means nothing to this form, or its value is unusable; names it.
        KeyError: There is no such preset.
    """
    return rrl_changed(name, PRESETS[name], changes or {})


def rrl_changed(name: str, parameters: RRLParameters, changes: Mapping[str, Any]) -> RRLParameters:
    """Return the parameters of a form of RRL with some changed, all of which mean something to it.

    Args:
        name: What the form is called, for messages.
        parameters: Its own.
        changes: New values by field, see :func:`~tuner.agents.constants.changed`.

    Raises:
        InvalidInput: A field is unknown or means nothing to this form, or its value is unusable; names it.
    """
    table = changes.get("perception", parameters.perception) == "table"
    for field in changes:
        outer = field.partition(".")[0]
        if outer in (SMOOTH_ONLY if table else TABLE_ONLY):
            why = "it has a table" if table else "it smooths costs and has no table"
            problem = f"means nothing in {name}: {why}"
            others = "rrl" if table else "rrl_paper, rrl_code and q_learning"
            raise InvalidInput(f"parameter {field}", problem, f"it is a parameter of {others}")
    return changed(name, parameters, changes)
