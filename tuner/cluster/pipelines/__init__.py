"""Queries in the simulated cluster: the answers of one stage become the requests of the next."""

from tuner.cluster.pipelines.budgets import ChosenBudgets, choose_budgets
from tuner.cluster.pipelines.goodput import query_goodput
from tuner.cluster.pipelines.scenario import Deadlines, PipelineScenario
from tuner.cluster.pipelines.simulation import PipelineOutcome, simulate_pipeline

__all__ = [
    "ChosenBudgets",
    "Deadlines",
    "PipelineOutcome",
    "PipelineScenario",
    "choose_budgets",
    "query_goodput",
    "simulate_pipeline",
]
