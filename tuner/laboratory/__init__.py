"""The learning laboratory: agents in environments, trial by trial, and how they compare."""

from tuner.laboratory.trial import Trial, TrialSpec, run_trial

__all__ = ["Trial", "TrialSpec", "run_trial"]
