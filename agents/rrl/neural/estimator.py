"""What every configuration is expected to show under a load, and what that costs by an objective."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tuner.agents.rrl.neural.inputs import NAMES, inputs_of
from tuner.agents.rrl.neural.knowledge import ServerKnowledge
from tuner.agents.rrl.neural.network import evaluate, shipped
from tuner.agents.rrl.neural.queueing import settings_of
from tuner.agents.rrl.prior import LogCosts
from tuner.knobs import KnobSpace, Role
from tuner.objective import SATURATION, Objective

__all__ = ["Estimate", "costs_of", "describable", "estimate"]

STATISTICS = ("mean", "p50", "p95", "p99")
"""The first columns of the outputs, as the network was trained, whatever else comes to be measured."""
STEEP = math.log(SATURATION)
CPU, GPU = 4, 5
"""Columns of the use among the network's outputs."""
BEYOND = 0.25
"""An input is out of range from this many deviations of the training's inputs on ..."""
COMMON = 0.25
"""... if it is in this share of the configurations."""
AUTOMATIC = 0.4
"""Standard deviation of the logarithm of a latency for each number of threads that is left to the server."""
WIDEST = 4.0
"""Most by which the uncertainty grows for a server outside the range of the training, as a factor."""


class Estimate(NamedTuple):
    """What configurations are expected to show: jointly normal logarithms (:class:`~.network.Outputs`)."""

    mean: np.ndarray  # (n, 6) of mean, p50, p95, p99, s; of the cores in use, and of the share of the GPU
    deviation: np.ndarray  # (n, 6) of each configuration alone
    loadings: np.ndarray  # (n, 6, FACTORS + 3) on what is common to the configurations of a server
    unlike: tuple[str, ...]  # in which respects the server is unlike those of the training


def describable(space: KnobSpace) -> bool:
    """Whether the estimator knows what a knob of a space does; if not, the smoother is on its own."""
    return any(knob.role is not Role.OTHER for knob in space.knobs)


def estimate(space: KnobSpace, knowledge: ServerKnowledge, rate: float) -> Estimate:
    """Return what every configuration of a space is expected to show.   # n = space.size.

    The farther outside the range of the training, the more uncertain it is.

    Args:
        space: The configurations.
        knowledge: Of the server.
        rate: Requests/s.
    """
    settings = settings_of(space, knowledge.cores)
    reference = knowledge.reference
    watched = None if reference is None else settings.row(np.array([reference.configuration]))
    inputs = inputs_of(settings, knowledge, rate, watched)
    outputs = evaluate(shipped(), inputs.rows)
    relative = np.column_stack([*[inputs.latency] * CPU, inputs.use, inputs.use])
    # 0 leaves a number of threads to the server: the same unknown number in all configurations with it.
    chosen = np.repeat(AUTOMATIC * settings.automatic[:, None, :], outputs.mean.shape[1], axis=1)
    wider = np.minimum(1.0 + np.sqrt((outputs.beyond**2).sum(axis=1)), WIDEST)[:, None]
    return Estimate(
        outputs.mean + relative,
        outputs.deviation * wider,
        np.concatenate([outputs.loadings * wider[:, :, None], chosen], axis=2),
        _unlike(outputs.beyond),
    )


def _unlike(beyond: np.ndarray) -> tuple[str, ...]:
    """Name the properties in which the server lies outside the range of the training, each once."""
    columns = np.flatnonzero((beyond > BEYOND).mean(axis=0) > COMMON)
    return tuple(dict.fromkeys(NAMES[column] for column in columns))


def costs_of(expected: Estimate, objective: Objective) -> LogCosts:
    """Return what configurations are expected to cost.

    Where a broken SLO costs more, a cost is one of two: that of a kept SLO, or that of a broken one. Mean and
    deviation of its logarithm are those of the two, by the probability of each. So a configuration that is
    as likely to be the best as to break the SLO is uncertain, and is worth a try.
    """
    column = STATISTICS.index(objective.slo.statistic)
    logs = expected.mean[:, column] - math.log(objective.slo.latency)
    # Copies: costs are kept for many loads, and a view would keep the other quantities with them.
    own, loadings = expected.deviation[:, column].copy(), expected.loadings[:, column].copy()
    ratio = np.where(logs > STEEP, SATURATION * (1.0 + logs - STEEP), np.exp(logs))  # as in the objective
    latency = LogCosts(np.log(ratio), own, loadings)
    if objective.goal == "latency":
        return latency
    broken = latency._replace(mean=np.log1p(np.maximum(ratio, 1.0)))
    if objective.goal == "strict":
        return _kept_or_broken(latency, broken, logs, latency)
    used = GPU if objective.goal == "gpu" else CPU
    use = np.exp(expected.mean[:, used]) / (1.0 if used == GPU else objective.cores)
    kept = LogCosts(np.log(np.minimum(use, 1.0)), expected.deviation[:, used], expected.loadings[:, used])
    return _kept_or_broken(kept, broken, logs, latency)


def _kept_or_broken(kept: LogCosts, broken: LogCosts, logs: np.ndarray, latency: LogCosts) -> LogCosts:
    """Return the costs where it is uncertain whether the SLO is kept or broken.

    With the probability that the latency stays within the SLO, the cost is that of a kept SLO; otherwise it
    is that of a broken one. The part of the cost that is linear in the latency has the latency's uncertainty,
    in common with other configurations and alone. The rest of the uncertainty is the leap: it is of each
    configuration alone, because how near others came to the SLO does not tell on which side of it this one
    is.

    Args:
        kept: Costs if it is kept.
        broken: Costs if it is broken.
        logs: Expected logarithm of the latency over the SLO.   # (n,)
        latency: How uncertain that is, in all and in common.
    """
    from scipy.special import ndtr

    above = logs / latency.deviation
    share = ndtr(-above)
    density = np.exp(-0.5 * above**2) / math.sqrt(2.0 * math.pi)  # of the standard normal, at the SLO
    gap = broken.mean - kept.mean
    apart = density * gap / latency.deviation
    leap = np.sqrt(np.maximum(share * (1.0 - share) - density**2, 0.0)) * np.abs(gap)
    column = share[:, None]
    return LogCosts(
        share * kept.mean + (1.0 - share) * broken.mean,
        share * kept.own + (1.0 - share) * broken.own + apart * latency.own,
        column * kept.loadings + (1.0 - column) * broken.loadings + apart[:, None] * latency.loadings,
        leap,
    )
