"""How far a simulated result can be relied on: how much chance moves it, and what speaks against it."""

from __future__ import annotations

import math

from tuner.cluster.goodput import FEWEST, Good, Goodput, capacity, goodput
from tuner.cluster.outcome import Outcome
from tuner.cluster.scenario import Scenario
from tuner.scheduling.cluster import LARGEST

__all__ = ["bad_interval", "doubts", "other_rates"]

SURE = 1.96
"""Standard errors of a 95 % interval."""
PLAYED = 0.01
"""Share of the measured time by which a trace may end before or after it, without a word."""
EXCESS = 1.005
"""By which a rate may exceed a capacity, which is not known exactly."""


def bad_interval(bad: int, requests: int) -> tuple[float, float]:
    """Return a 95 % interval of a share (Wilson's), as if requests were independent; (0, 1) without any."""
    if not requests:
        return 0.0, 1.0
    share, square = bad / requests, SURE**2 / requests
    middle = share + square / 2
    width = SURE * math.sqrt(share * (1 - share) / requests + square / (4 * requests))
    low, high = (middle - width) / (1 + square), (middle + width) / (1 + square)
    return max(low, 0.0), min(high, 1.0)


def doubts(
    scenario: Scenario,
    outcome: Outcome,
    rate: float | None = None,
    good: Good = Good(),  # noqa: B008 - it does not change
) -> tuple[str, ...]:
    """Return what a reader should know before relying on a result, in sentences.

    Args:
        scenario: What was simulated.
        outcome: The result.
        rate: Of all requests, requests/s, if it is called good.
        good: Which bad rates are good.
    """
    texts = _luck_doubts(outcome, good)
    texts += _trace_doubts(scenario, outcome)
    if rate is not None and not scenario.at_once:
        most = capacity(scenario)
        if rate > most * EXCESS:
            texts.append(
                f"{rate:,.6g} requests/s are more than the accelerators can execute for long, about "
                f"{most:,.6g}: so short a time is served from the queue; measure longer"
            )
    texts += _batch_doubts(scenario)
    return tuple(texts)


def _batch_doubts(scenario: Scenario) -> list[str]:
    """Return sentences on batches that are kept smaller than they could be."""
    if scenario.distributes:  # it makes none
        return []
    texts = []
    for session in scenario.sessions:
        capped = scenario.hardware.capping_kind(session)
        if capped is not None:
            kind, largest, other = capped
            texts.append(
                f"batches of {session.name} have at most {largest:,} requests on every accelerator, because "
                f"its profile on {kind} ends there, though more fit into its SLO on {other}"
            )
        if session.alpha_ms is None or (session.max_batch or LARGEST + 1) <= LARGEST:
            continue
        if session.alpha_ms * (LARGEST + 1) + (session.beta_ms or 0.0) <= session.slo_ms:
            texts.append(
                f"batches of {session.name} have at most {LARGEST:,} requests, though more fit into its SLO"
            )
    return texts


def _luck_doubts(outcome: Outcome, good: Good) -> list[str]:
    """Return a sentence if so few requests may be bad that luck decides."""
    allowed = [good.allowed(one.quantile) * one.requests for one in outcome.sessions]
    few = [one for one, bad in zip(outcome.sessions, allowed, strict=True) if bad < FEWEST]
    if good.overall and sum(allowed) < FEWEST:
        requests, whose, share = outcome.requests, "", sum(allowed) / max(outcome.requests, 1)
    elif few and not good.overall:
        least = min(few, key=lambda one: one.requests)
        more = f", and of {len(few) - 1} more," if len(few) > 1 else ""
        requests, whose, share = least.requests, f" of {least.name}{more}", good.allowed(least.quantile)
    else:
        return []
    return [
        f"only {requests:,} requests{whose} were simulated: the share of {share:.2g} that may be bad is "
        f"below {FEWEST}, so luck decides; measure longer"
    ]


def _trace_doubts(scenario: Scenario, outcome: Outcome) -> list[str]:
    """Return sentences on traces that last longer than what is simulated, or end before."""
    if scenario.requests is not None:
        if not scenario.traced or outcome.requests >= scenario.requests:
            return []
        return [f"the traces have only {outcome.requests:,} of the {scenario.requests:,} `requests`"]
    begin, end, _ = scenario.interval
    texts = []
    for session in scenario.each_session:
        times = session.process().times
        last = end if times is None else float(times[-1])
        if abs(last - end) > PLAYED * (end - begin):
            what = "the rest plays no part" if last > end else "nothing comes from then on"
            texts.append(
                f"the trace of {session.name} lasts {last:.6g} s, and {end:.6g} s are simulated: {what}"
            )
    more = [f"that holds of {len(texts) - 1} more traces"] if len(texts) > 1 else []
    return texts[:1] + more


def other_rates(
    scenario: Scenario,
    found: Goodput,
    count: int,
    good: Good = Good(),  # noqa: B008 - it does not change
) -> tuple[float, ...]:
    """Return the goodput with other seeds, requests/s; none if it was 0.

    Args:
        scenario: What was searched.
        found: With its own seed; the searches begin there.
        count: How many seeds.
        good: As of :func:`goodput`.
    """
    if not found.rate:
        return ()
    seeds = range(scenario.seed + 1, scenario.seed + 1 + count)
    others = (scenario.model_copy(update={"seed": seed}) for seed in seeds)
    return tuple(goodput(one, good=good, near=found.multiplier).rate for one in others)
