"""Query distribution: which query of many items executes on which instance of mixed types, one at a time."""

from tuner.scheduling.distribution.matching import Matching, make_matching, match
from tuner.scheduling.distribution.predictor import Predictor, learn, make_predictor, predict

__all__ = ["Matching", "Predictor", "learn", "make_matching", "make_predictor", "match", "predict"]
