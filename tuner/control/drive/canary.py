"""The canary: one of several replicas tries a configuration before the others get it."""

from __future__ import annotations

from collections.abc import Callable

from tuner.adapters.backend import Backend
from tuner.adapters.replicas.canary import Canary, CanaryTrial, ServedRequests
from tuner.duration import format_duration
from tuner.errors import AdapterError
from tuner.knobs import Configuration
from tuner.objective import Slo

__all__ = ["configurations", "objection", "try_first"]


def configurations(backend: Backend) -> list[Configuration]:
    """Return what each replica of a backend runs, or what its one server runs.

    Raises:
        AdapterError: No server answers.
    """
    return backend.configurations() if isinstance(backend, Canary) else [backend.current()]


def try_first(backend: object, configuration: Configuration, slo: Slo, wait: Callable[[float], None]) -> str:
    """Try a configuration on one replica, if there are several; take it back if it is bad.

    Args:
        backend: A server, or a group of replicas.
        configuration: The configuration to try.
        slo: The SLO of the target.
        wait: Lets the time of the trial pass, and before it the given seconds, in which the replica settles.

    Returns:
        Why the other replicas must not have the configuration; empty if nothing speaks against it.

    Raises:
        AdapterError: The replica refused, or went away.
    """
    if not isinstance(backend, Canary):
        return ""
    trial = backend.try_one(configuration, wait)
    problem = objection(trial, slo) if trial is not None else ""
    if problem:
        try:
            backend.take_back()
        except AdapterError as error:
            # It differs from the others then, and gets what they run as soon as it can be changed.
            problem = f"{problem}; it could not be taken back: {error}"
    return problem


def objection(trial: CanaryTrial, slo: Slo) -> str:
    """Return what speaks against a configuration beyond doubt; empty if nothing does.

    Two things do: a larger share of failed requests than on the other replicas; and a mean latency above the
    SLO's bound while theirs is below. The bound is usually that of a quantile, which lies above the mean. The
    replicas' quantiles may still contain requests from before the trial, so finer differences are left to the
    probation of the whole group.
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
