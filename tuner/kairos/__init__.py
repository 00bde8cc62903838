"""Kairos: which instances of mixed types to rent for a model, and how queries are shared out among them."""

from tuner.kairos.bound import Terms, auxiliary_limited, bounds, make_terms
from tuner.kairos.catalogue import InstanceType, Line, Offers, Table, make_offers
from tuner.kairos.ceiling import ceilings
from tuner.kairos.choice import best_homogeneous, choose
from tuner.kairos.paper import paper_catalogue
from tuner.kairos.plan import Plan, plan_instances, plan_scenario
from tuner.kairos.pool import pools_within, ranked
from tuner.kairos.scenario import MixedScenario, QuerySession
from tuner.kairos.search import Found, kairos_plus
from tuner.kairos.sizes import SizeDistribution, SizeMonitor, parse_sizes

__all__ = [
    "Found",
    "InstanceType",
    "Line",
    "MixedScenario",
    "Offers",
    "Plan",
    "QuerySession",
    "SizeDistribution",
    "SizeMonitor",
    "Table",
    "Terms",
    "auxiliary_limited",
    "best_homogeneous",
    "bounds",
    "ceilings",
    "choose",
    "kairos_plus",
    "make_offers",
    "make_terms",
    "paper_catalogue",
    "parse_sizes",
    "plan_instances",
    "plan_scenario",
    "pools_within",
    "ranked",
]
