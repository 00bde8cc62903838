"""Plans: packing sessions onto accelerators, and splitting the SLO of a query over its stages.

The sessions are random jobs of the models of Symphony's Table 5, each of 0.4 accelerators on average. The
queries have 20 stages, as a chain or as a tree in which every stage calls two others, and times are whole
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tuner.experiments.benchmarks.report import BenchOptions, BenchRow, compared, seconds_of
from tuner.experiments.blox.jobs import random_loads
from tuner.planning.packing.consolidation import consolidate
from tuner.planning.queries.query import Query
from tuner.planning.queries.rivals import harpagon_split
from tuner.planning.queries.split import best_split, choices_of

__all__ = ["run"]

SESSIONS = {1000: 50.0, 10_000: 1000.0}
"""How many are packed -> ms that it may take."""
SHAPES = ("chain", "tree")
STAGES = 20
QUERY = 50.0
"""ms that a query may take."""
SLOS = (400, 1000)
"""ms"""
QUICK = 10


def run(options: BenchOptions) -> list[BenchRow]:
    """Measure everything; ``options.repeats`` is how often."""
    rows = [
        _packing(count // (QUICK if options.quick else 1), most, options.repeats)
        for count, most in options.track(SESSIONS.items(), "packing")
    ]
    for shape, slo in options.track([*product(SHAPES, SLOS)], "queries"):
        rows += _query(shape, slo, options.repeats)
    return rows


def _packing(count: int, most: float, repeats: int) -> BenchRow:
    loads = random_loads(np.random.default_rng(1), count)
    nodes = len(consolidate(loads))
    seconds = seconds_of(lambda: consolidate(loads), repeats)
    note = f"onto {nodes:,} accelerators; target: at most {most:g} ms"
    return compared(f"packing of {count:,} sessions", 1e3 * seconds, None, "ms", note=note)


def _query(shape: str, slo: int, repeats: int) -> Iterator[BenchRow]:
    query = Query.model_validate(
        {"slo_ms": slo, "rate": 1000.0, "resolution_ms": 1, "stages": _stages(shape, slo)}
    )
    choices = choices_of(query)
    best = seconds_of(lambda: best_split(query, choices_of(query)), repeats)
    greedy = seconds_of(lambda: harpagon_split(query, choices), repeats)
    note = f"baseline: the greedy split of Harpagon; target: at most {QUERY:g} ms"
    name = f"split of {slo} ms over a {shape} of {STAGES} stages"
    yield compared(name, 1e3 * best, 1e3 * greedy, "ms", less=True, note=note)


def _stages(shape: str, slo: int) -> list[dict[str, Any]]:
    """Return stages that take 1 to 4 % of the SLO for one request, and 0.2 to 0.6 % for each further one."""
    generator = np.random.default_rng(2)
    called = {
        number: [number + 1] if shape == "chain" else [2 * number + 1, 2 * number + 2]
        for number in range(STAGES)
    }
    return [
        {
            "name": str(number),
            "alpha_ms": slo * float(generator.uniform(0.002, 0.006)),
            "beta_ms": slo * float(generator.uniform(0.01, 0.04)),
            "next": [{"stage": str(one), "gamma": 1.0} for one in called[number] if one < STAGES],
        }
        for number in range(STAGES)
    ]
