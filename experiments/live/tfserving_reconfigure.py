"""Fifty live reconfigurations of TensorFlow Serving under load: failed requests, and the worst wait."""

from __future__ import annotations

from tuner.experiments.frame.catalogue import Options
from tuner.experiments.frame.result import Result
from tuner.experiments.live.reconfigure import reconfigure
from tuner.experiments.live.testbed import tfserving

__all__ = ["run"]

RATE = 80.0


def run(options: Options) -> Result:
    """Change the configuration at random under load, and count."""
    return reconfigure("tfserving-reconfigure", RATE, lambda seed: tfserving(RATE, seed=seed), options)
