"""Kairos: which instances of mixed types to rent for a model, within a budget."""

from tuner.planning.pools.bound import bounds
from tuner.planning.pools.learned import LearnedFile
from tuner.planning.pools.paper import paper_catalogue
from tuner.planning.pools.plan import PoolPlan
from tuner.planning.pools.planner import make_order, plan_order, plan_scenario
from tuner.planning.pools.pool import pools_within, ranked
from tuner.planning.pools.replan import Replanner
from tuner.planning.pools.search import kairos_plus
from tuner.planning.pools.switch import running_pool
from tuner.workload.sizes import parse_sizes

__all__ = [
    "LearnedFile",
    "PoolPlan",
    "Replanner",
    "bounds",
    "kairos_plus",
    "make_order",
    "paper_catalogue",
    "parse_sizes",
    "plan_order",
    "plan_scenario",
    "pools_within",
    "ranked",
    "running_pool",
]
