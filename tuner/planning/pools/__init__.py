"""Kairos: which instances of mixed types to rent for a model, within a budget."""

from tuner.planning.pools.bound import Terms, auxiliary_limited, bounds, make_terms
from tuner.planning.pools.catalogue import InstanceType, Line, Offers, Table, make_offers
from tuner.planning.pools.ceiling import ceilings
from tuner.planning.pools.choice import best_homogeneous, choose
from tuner.planning.pools.demand import Demand, PlanningScenario
from tuner.planning.pools.learned import Learned, LearnedFile, read_observations, with_profiles
from tuner.planning.pools.paper import paper_catalogue
from tuner.planning.pools.plan import PoolPlan
from tuner.planning.pools.planner import plan_instances, plan_scenario
from tuner.planning.pools.pool import pools_within, ranked
from tuner.planning.pools.replan import PoolDecision, Replanner, Rules
from tuner.planning.pools.search import SearchResult, kairos_plus
from tuner.planning.pools.switch import Running, Switch, make_switch, running_pool
from tuner.workload.sizes import SizeDistribution, SizeMonitor, parse_sizes

__all__ = [
    "Demand",
    "InstanceType",
    "Learned",
    "LearnedFile",
    "Line",
    "Offers",
    "PlanningScenario",
    "PoolDecision",
    "PoolPlan",
    "Replanner",
    "Rules",
    "Running",
    "SearchResult",
    "SizeDistribution",
    "SizeMonitor",
    "Switch",
    "Table",
    "Terms",
    "auxiliary_limited",
    "best_homogeneous",
    "bounds",
    "ceilings",
    "choose",
    "kairos_plus",
    "make_offers",
    "make_switch",
    "make_terms",
    "paper_catalogue",
    "parse_sizes",
    "plan_instances",
    "plan_scenario",
    "pools_within",
    "ranked",
    "read_observations",
    "running_pool",
    "with_profiles",
]
