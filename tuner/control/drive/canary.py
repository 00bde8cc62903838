"""The canary: one of several replicas tries a configuration before the others get it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tuner.adapters.replicas.canary import Canary, CanaryTrial, ServedRequests
from tuner.control.decide.evidence import FailedRequests
from tuner.duration import format_duration
from tuner.errors import AdapterError, InvalidInput, TunerError
from tuner.knobs import Configuration
from tuner.objective import Slo

__all__ = ["Verdict", "objection", "try_first"]


class Verdict(NamedTuple):
    """What came of a trial; if both are empty, the other replicas may have the configuration."""

    objection: str = ""
    """What speaks against the configuration."""
    forbidden: str = ""
    """Why nothing may be changed any more, whatever the configuration is worth."""


def try_first(
    backend: object,
    configuration: Configuration,
    slo: Slo,
    wait: Callable[[float], None],
    forbidden: Callable[[], str],
) -> Verdict:
    """Try a configuration on one replica, if there are several; take it back if the others must not have it.

    Args:
        backend: A server, or a group of replicas.
        configuration: The configuration to try.
        slo: The SLO of the target.
        wait: Lets the time of the trial pass, and before it the given seconds, in which the replica settles.
        forbidden: Says after the trial why nothing may be changed any more; nothing if it may.

    Raises:
        AdapterError: The replica refused, or went away; or what `forbidden` raised.
    """
    if not isinstance(backend, Canary):
        return Verdict()
    trial = backend.try_one(configuration, wait)
    if trial is None:
        return Verdict()
    problem = objection(trial, slo)
    try:
        verdict = Verdict(objection=problem) if problem else Verdict(forbidden=forbidden())
    except TunerError:  # nobody would take it back before all are alike again
        with suppress(TunerError):
            backend.take_back()
        raise
    if not any(verdict):
        return verdict
    try:
        backend.take_back()
    except (AdapterError, InvalidInput) as error:  # the second: what it ran is nothing that can be set
        # It differs from the others then, and gets what they run as soon as it can be changed.
        late = f"; it could not be taken back: {error}"
        return Verdict(*(word and word + late for word in verdict))
    return verdict


def objection(trial: CanaryTrial, slo: Slo) -> str:
    """Return what speaks against a configuration beyond doubt; empty if nothing does.

    Two things do: a larger share of failed requests than on the other replicas, which chance does not
    explain; and a mean latency above the SLO's bound while theirs is below. The bound is usually that of a
    quantile, which lies above the mean. The replicas' quantiles may still contain requests from before the
    trial, so finer differences are left to the probation of the whole group.
    """
    tried, others = trial.tried, trial.others
    if _failed(tried).more_than(_failed(others)):
        return f"canary {trial.server}: {_failures(tried)} failed, {_failures(others)} elsewhere"
    if tried.mean > slo.latency and not others.mean > slo.latency:
        means = f"{format_duration(tried.mean)} against {format_duration(others.mean)} elsewhere"
        return f"canary {trial.server}: even the mean, {means}, breaks the SLO"
    return ""


def _failed(share: ServedRequests) -> FailedRequests:
    return FailedRequests(share.failures, share.requests + share.failures)


def _failures(share: ServedRequests) -> str:
    return f"{share.failures} of {share.requests + share.failures} requests"
