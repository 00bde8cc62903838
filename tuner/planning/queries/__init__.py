"""Queries that call several models: how their SLO is split (Nexus, section 6.2)."""

from tuner.planning.queries.drift import QueryWatch
from tuner.planning.queries.plan import QueryPlan, StagePlan, plan_query, plan_within
from tuner.planning.queries.query import Call, Choices, Query, QueryStage
from tuner.planning.queries.rivals import accelerators, even_budgets, even_split, harpagon_split
from tuner.planning.queries.split import Batches, best_split, choices_of

__all__ = [
    "Batches",
    "Call",
    "Choices",
    "Query",
    "QueryPlan",
    "QueryStage",
    "QueryWatch",
    "StagePlan",
    "accelerators",
    "best_split",
    "choices_of",
    "even_budgets",
    "even_split",
    "harpagon_split",
    "plan_query",
    "plan_within",
]
