"""The benchmarks by name: modules with a ``run`` function, imported when first used."""

from __future__ import annotations

from importlib import import_module

from tuner.errors import InvalidInput
from tuner.experiments.benchmarks.report import BenchOptions, BenchRow

__all__ = ["BENCHMARKS", "run_benchmark"]

BENCHMARKS = {
    "engine": "requests simulated per second, beside SimPy and plain Python; how it grows; memory",
    "scheduler": "a policy alone: requests per second, and how it grows with threads and sizes",
    "decision": "one live decision called from Python",
    "kairos": "one matching of queries with instances, bounds of many pools, queries simulated per second",
    "fronts": "requests per second and core through the dispatcher's fronts, and the latency they add",
    "planning": "packing sessions onto accelerators, splitting the SLO of a query",
    "training": "windows per minute in the environments, a region update, decisions during training",
}


def run_benchmark(name: str, options: BenchOptions) -> list[BenchRow]:
    """Run a benchmark.

    Args:
        name: One of ``BENCHMARKS``.
        options: How much is measured.

    Raises:
        InvalidInput: There is no such benchmark.
    """
    if name not in BENCHMARKS:
        raise InvalidInput("NAME", f"no benchmark '{name}'", f"there are {', '.join(BENCHMARKS)}")
    rows: list[BenchRow] = import_module(f"tuner.experiments.benchmarks.{name}").run(options)
    return rows
