"""Random jobs for the figures of Nexus on Blox, whose own distributions are not public.

Models are those of Symphony's Table 5, with random SLOs and rates: most jobs need a part of an accelerator,
some several.
"""

from __future__ import annotations

import numpy as np

from tuner.experiments.zoo import GTX_1080TI
from tuner.planning.packing.load import SessionLoad
from tuner.planning.rounds.replay import InferenceJob
from tuner.planning.rounds.simulation import ReplayedModel

__all__ = ["LOAD_SECONDS", "known_models", "random_jobs", "random_loads"]

LOAD_SECONDS = 0.5
"""To load a model."""
MEAN_LOAD = 0.4
"""Mean part of an accelerator that a job needs, exponentially distributed."""
SLO = (1.0, 4.0)
"""Of a job, relative to that of its model in Table 5."""


def known_models() -> dict[str, ReplayedModel]:
    """Return the models of Table 5 by name."""
    return {
        model.name: ReplayedModel(model.latency(5.0 * model.slo_ms), LOAD_SECONDS) for model in GTX_1080TI
    }


def random_jobs(
    generator: np.random.Generator, count: int, names: list[str], arrival: float = 0.0
) -> list[InferenceJob]:
    """Return jobs of random models, all in one round."""
    models = {model.name: model for model in GTX_1080TI}
    jobs = []
    for number in range(count):
        name = names[int(generator.integers(len(names)))]
        model = models[name]
        slo = float(generator.uniform(*SLO)) * model.slo_ms
        latency = model.latency(slo)
        fits = latency[1:] <= slo / 2e3
        batch = max(int(fits.sum()), 1)
        rate = float(generator.exponential(MEAN_LOAD)) * batch / float(latency[batch])
        jobs.append(InferenceJob(f"{arrival:g}-{number}", name, slo / 1e3, rate, arrival))
    return jobs


def random_loads(generator: np.random.Generator, count: int) -> list[SessionLoad]:
    """Return what jobs of random models, all in one round, ask of the accelerators."""
    models = known_models()
    return [
        SessionLoad(name=job.name, latency=models[job.model].latency, budget=job.slo, rate=job.rate)
        for job in random_jobs(generator, count, list(models))
    ]
