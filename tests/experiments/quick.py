"""Short runs of experiments, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from tuner.experiments.frame.experiment import Experiment
from tuner.experiments.frame.options import ExperimentOptions, Watcher

__all__ = ["quick"]

AnyExperiment = TypeVar("AnyExperiment", bound="Experiment[Any, Any]")


def quick(
    kind: type[AnyExperiment], *, seeds: int = 1, folder: Path = Path(), watcher: Watcher | None = None
) -> AnyExperiment:
    """Return an experiment that is small and starts no processes."""
    return kind(ExperimentOptions(seeds=seeds, quick=True, folder=folder, workers=1), watcher)
