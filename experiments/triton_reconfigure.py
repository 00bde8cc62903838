"""Fifty live reconfigurations of Triton under load: failed requests, and the worst wait."""

from __future__ import annotations

from tuner.experiments.bench import triton
from tuner.experiments.catalogue import Options
from tuner.experiments.reconfigure import reconfigure
from tuner.experiments.result import Result

__all__ = ["run"]

RATE = 200.0


def run(options: Options) -> Result:
    """Change the configuration at random under load, and count."""
    return reconfigure(
        "triton-reconfigure", RATE, lambda seed: triton(RATE, seed=seed, quick=options.quick), options
    )
