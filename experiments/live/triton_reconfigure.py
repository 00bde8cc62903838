"""Fifty live reconfigurations of Triton under load: failed requests, and the worst wait."""

from __future__ import annotations

from tuner.experiments.frame.catalogue import Options
from tuner.experiments.frame.result import Result
from tuner.experiments.live.reconfigure import reconfigure
from tuner.experiments.live.testbed import triton

__all__ = ["run"]

RATE = 200.0


def run(options: Options) -> Result:
    """Change the configuration at random under load, and count."""
    return reconfigure(
        "triton-reconfigure", RATE, lambda seed: triton(RATE, seed=seed, quick=options.quick), options
    )
