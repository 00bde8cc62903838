"""The network's inputs: one row per configuration, relative to l(1) or to the mean gap between requests.

Nothing is absolute but counts: a server ten times as fast under ten times the load has the same inputs. The
outputs are relative, too: logarithms of latencies less that of the queueing formulas
(:mod:`~tuner.agents.rrl.neural.queueing`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner.agents.rrl.neural.knowledge import SIZES, ServerKnowledge
from tuner.agents.rrl.neural.queueing import Queue, Settings, queue_of

__all__ = ["INPUTS", "NAMES", "Inputs", "inputs_of"]

FLOOR = 1e-6
"""Least ratio of two times that counts, so that it has a logarithm."""
SOFT = 0.05
"""Added to a quantity that may be 0 before its logarithm is taken; the network was trained with it."""
SPREAD = 2.5
"""Octaves of e above the least latency of a server beyond which the formulas' differences do not count."""


class Inputs(NamedTuple):
    """Rows of the network, and what its outputs are relative to."""

    rows: np.ndarray  # (n, INPUTS) float32
    latency: np.ndarray  # (n,) logarithm of the latency by the formulas, s; not above the least by SPREAD
    use: np.ndarray  # (n,) logarithm of the use by the formulas


def inputs_of(
    settings: Settings, knowledge: ServerKnowledge, rate: float, watched: Settings | None = None
) -> Inputs:
    """Return the inputs for configurations under a load.

    Args:
        settings: The configurations.   # (n,) each
        knowledge: Of the server.
        rate: Requests/s.
        watched: The configuration of ``knowledge.reference``.   # (1,) each
    """
    rate *= knowledge.rows
    queue = queue_of(settings, knowledge, rate)
    unit = knowledge.seconds[0]
    own = _configuration(settings, queue, unit, knowledge.cores, rate)
    latency = np.minimum(queue.latency, queue.latency.min() + SPREAD)
    use = np.log(np.maximum(queue.use, FLOOR))
    server = _server(knowledge, rate)
    seen = _reference(knowledge, watched, rate)
    count = settings.batch.size
    rows = np.concatenate(
        [
            own,
            np.tile(np.concatenate([server, seen]), (count, 1)),
            np.minimum(queue.latency - latency, SPREAD)[:, None],
        ],
        axis=1,
    )
    return Inputs(np.asarray(rows, np.float32), latency, use)


def _configuration(settings: Settings, queue: Queue, unit: float, cores: float, rate: float) -> np.ndarray:
    """Return what describes each configuration, at a rate in rows/s.   # (n, k)."""

    def log(ratio: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(np.maximum(ratio, FLOOR)))

    threads = settings.parallelism * settings.inter_op * settings.intra_op
    columns = [
        np.log2(settings.batch) / 3.0,
        np.log1p(settings.delay * rate),
        np.log1p(settings.delay / unit),
        np.log2(settings.parallelism) / 2.0,
        log(settings.parallelism / cores),
        np.log2(settings.inter_op),
        np.log2(settings.intra_op),
        log(threads / cores),
        np.maximum(np.log(settings.intra_op * settings.inter_op / cores), -4.0),
        np.log2(queue.formed) / 3.0,
        log(queue.formed / settings.batch),
        log(queue.execution / unit),
        np.clip(log(queue.full), -4.0, 2.0),
        np.clip(log(queue.busy), -4.0, 2.0),
        np.clip(1.0 - queue.busy, -1.0, 1.0),
        np.clip(1.0 - queue.full, -1.0, 1.0),
        np.maximum(log(queue.forming / unit), -5.0),
        np.maximum(log(queue.wait / unit), -5.0),
        queue.latency.clip(max=queue.latency.min() + SPREAD) - np.log(unit),
        np.clip(queue.latency - queue.latency.min(), 0.0, 5.0),
        log(queue.slots),
    ]
    return np.stack(columns, axis=1)


def _server(knowledge: ServerKnowledge, rate: float) -> np.ndarray:
    """Return what describes the server and its load, in rows/s.   # (k,)."""
    shape = np.log(knowledge.seconds / knowledge.seconds[0])
    return np.concatenate(
        [
            [float(knowledge.gpu), np.log2(knowledge.cores) / 2.0, np.log(knowledge.burstiness + SOFT)],
            [np.log(rate * knowledge.seconds[0]), np.log(rate * knowledge.seconds[0] / knowledge.cores)],
            shape[1:] / np.log(SIZES[1:]),
            knowledge.doubt[[0, 3, 6]],
        ]
    )


def _reference(knowledge: ServerKnowledge, watched: Settings | None, rate: float) -> np.ndarray:
    """Return what was seen where the server was watched, zeros if it was not; rates in rows/s.   # (k,)."""
    reference = knowledge.reference
    if reference is None or watched is None:
        return np.zeros(REFERENCE)
    rate_then = reference.rate * knowledge.rows
    queue = queue_of(watched, knowledge, rate_then)
    unit = knowledge.seconds[0]
    own = _configuration(watched, queue, unit, knowledge.cores, rate_then)[0][WATCHED]
    seen = np.log(np.maximum(reference.latencies, FLOOR)) - queue.latency[0]
    known = np.isfinite(seen)
    seen = np.where(known, np.clip(seen, -3.0, 3.0), 0.0)
    use = np.log(max(reference.use, FLOOR)) - np.log(max(float(queue.use[0]), FLOOR))
    known_use = np.isfinite(use)
    compute, waited, batch = reference.inside
    inside = np.array(
        [
            np.log(max(compute, FLOOR) / queue.execution[0]),
            np.log((waited + SOFT * unit) / unit),
            np.log(max(batch, 1.0) / queue.formed[0]),
        ]
    )
    known_inside = np.isfinite(inside)
    return np.concatenate(
        [
            [1.0, np.log(rate / rate_then)],
            own,
            seen,
            known.astype(float),
            [np.clip(use, -3.0, 3.0) if known_use else 0.0, float(known_use)],
            np.where(known_inside, np.clip(inside, -4.0, 4.0), 0.0),
            known_inside.astype(float),
        ]
    )


WATCHED = np.array([0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 14, 18])
"""Columns that describe the configuration that was watched."""
REFERENCE = 2 + WATCHED.size + 4 + 4 + 2 + 3 + 3
NAMES = (
    *["knobs"] * 21, "GPU", "cores", "burstiness", *["load"] * 2, *["batching profile"] * 9,
    *["watched windows"] * REFERENCE, "knobs",
)  # fmt: skip
"""What each input describes, for people."""
INPUTS = len(NAMES)
"""Inputs of a row."""
