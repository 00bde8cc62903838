"""The choice of a pool by simulating the candidates with the highest ceilings."""

from tuner.planning.trials.plan import plan_by_trials
from tuner.planning.trials.trial import Trials

__all__ = ["Trials", "plan_by_trials"]
