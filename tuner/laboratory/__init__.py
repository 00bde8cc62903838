"""The laboratory: agents learn in environments and are compared; models of live servers are fitted."""

from tuner.laboratory.trial import Trial, TrialSpec, run_trial

__all__ = ["Trial", "TrialSpec", "run_trial"]
