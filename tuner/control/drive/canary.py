"""Tries a configuration on one of several replicas before the rest, and says whether it may go on."""

from __future__ import annotations

from collections.abc import Callable

from tuner.adapters.replicas.canary import Canary, CanaryTrial, ServedRequests
from tuner.duration import format_duration
from tuner.knobs import Configuration
from tuner.objective import Slo

__all__ = ["objection", "try_first"]


def try_first(backend: object, configuration: Configuration, slo: Slo, wait: Callable[[float], None]) -> str:
    """Try a configuration on one replica, if there are several.

    Args:
        backend: Of one server or of several.
        configuration: What to try.
        slo: What the target must keep.
        wait: Lets the time of a trial pass, longer by the seconds it is told.

    Returns:
        Why the others must not have it, in which case that one has its own back; empty if nothing speaks
        against it.

    Raises:
        AdapterError: The replica refused, or went away.
    """
    if not isinstance(backend, Canary):
        return ""
    trial = backend.try_one(configuration, wait)
    problem = objection(trial, slo) if trial is not None else ""
    if problem:
        backend.take_back()
    return problem


def objection(trial: CanaryTrial, slo: Slo) -> str:
    """Say what speaks against a configuration beyond doubt; empty if nothing does.

    More failures than beside it do; so does a mean latency above what the SLO allows a quantile, if the
    others keep to it. The replicas' quantiles may look back, so finer differences are left to probation.
    """
    tried, others = trial.tried, trial.others
    if tried.failures > 0 and tried.failed > others.failed:
        return f"canary {trial.server}: {_failures(tried)} failed, {_failures(others)} elsewhere"
    if tried.mean > slo.latency and not others.mean > slo.latency:
        means = f"{format_duration(tried.mean)} against {format_duration(others.mean)} elsewhere"
        return f"canary {trial.server}: even the mean, {means}, breaks the SLO"
    return ""


def _failures(share: ServedRequests) -> str:
    return f"{share.failures} of {share.requests + share.failures} requests"
