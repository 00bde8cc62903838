"""Kairos: which instances of mixed types to rent for a model, and how queries are shared out among them."""

from tuner.kairos.bound import Terms, auxiliary_limited, bounds, make_terms
from tuner.kairos.catalogue import InstanceType, Line, Offers, Table, make_offers
from tuner.kairos.ceiling import ceilings
from tuner.kairos.choice import best_homogeneous, choose
from tuner.kairos.learned import Learned, LearnedFile, read_observations, with_profiles
from tuner.kairos.paper import paper_catalogue
from tuner.kairos.plan import Plan, plan_instances, plan_scenario
from tuner.kairos.pool import pools_within, ranked
from tuner.kairos.replan import Decision, Replanner, Rules
from tuner.kairos.scenario import MixedScenario, QuerySession
from tuner.kairos.search import Found, kairos_plus
from tuner.kairos.sizes import SizeDistribution, SizeMonitor, parse_sizes
from tuner.kairos.switch import Running, Switch, make_switch, running_pool

__all__ = [
    "Decision",
    "Found",
    "InstanceType",
    "Learned",
    "LearnedFile",
    "Line",
    "MixedScenario",
    "Offers",
    "Plan",
    "QuerySession",
    "Replanner",
    "Rules",
    "Running",
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
