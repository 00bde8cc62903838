"""Distribution policies: each request has a size and executes alone on one of several unlike accelerators."""

from tuner.scheduling.distribution.matching import Matching, make_matching, match
from tuner.scheduling.distribution.predictor import Predictor, learn, make_predictor, predict

__all__ = ["Matching", "Predictor", "learn", "make_matching", "make_predictor", "match", "predict"]
