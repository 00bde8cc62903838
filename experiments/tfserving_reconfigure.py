"""Fifty live reconfigurations of TensorFlow Serving under load: failed requests, and the worst wait."""

from __future__ import annotations

from tuner.experiments.bench import tfserving
from tuner.experiments.catalogue import Options
from tuner.experiments.reconfigure import reconfigure
from tuner.experiments.result import Result

__all__ = ["run"]

RATE = 80.0


def run(options: Options) -> Result:
    """Change the configuration at random under load, and count."""
    return reconfigure("tfserving-reconfigure", RATE, lambda seed: tfserving(RATE, seed=seed), options)
