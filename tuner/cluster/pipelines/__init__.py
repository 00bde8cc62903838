"""Queries in the simulated cluster: the answers of one stage become the requests of the next."""

from tuner.cluster.pipelines.scenario import Deadlines, PipelineScenario
from tuner.cluster.pipelines.simulation import PipelineOutcome, simulate_pipeline

__all__ = ["Deadlines", "PipelineOutcome", "PipelineScenario", "simulate_pipeline"]
