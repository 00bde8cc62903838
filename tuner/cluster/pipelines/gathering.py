"""How long the batches of a query's later stages may gather: what proactive deadlines leave for it."""

from __future__ import annotations

import numpy as np

from tuner.planning.queries import Query, QueryPlan

__all__ = ["gathering_times"]

SAMPLES = 10_000
"""Random sums of waiting times from which their quantile is taken."""


def gathering_times(query: Query, plan: QueryPlan, hop: float, quantile: float) -> dict[str, float]:
    """Return how long, behind each stage, batches wait to gather: the quantile of the sum over a path, s.

    A batch waits between nothing and the execution before it. PARD (arXiv 2602.08747) takes the 10 % quantile
    of the sum: it serves the requests with the most time left first under overload. Those that are served
    from the head have hardly more time than is left here: with 10 %, a quarter of the work was in vain in an
    overloaded chain of three stages.

    Where executions and hops leave less of the SLO than that, stages share it by how long they execute. The
    later ones would take all of it, and the first would drop every request.

    Args:
        query: The stages.
        plan: Their planned executions.
        hop: From the end of a batch to the arrival at the next stage, s.
        quantile: The share of the queries whose batches gather in that time.
    """
    latency = {one.name: one.latency for one in plan.stages}
    called = {one.name: [call.stage for call in query.by_name[one.name].next] for one in plan.stages}
    rng = np.random.default_rng(0)
    waits = {name: np.zeros(SAMPLES) for name in latency}  # s, behind each stage
    before, behind = dict.fromkeys(latency, 0.0), dict.fromkeys(latency, 0.0)  # s, of executions and hops
    for stage in reversed(called):
        for name in called[stage]:
            waits[stage] = np.maximum(waits[stage], waits[name] + rng.uniform(0.0, latency[name], SAMPLES))
            behind[stage] = max(behind[stage], hop + latency[name] + behind[name])
    for stage in called:
        for name in called[stage]:
            before[name] = max(before[name], before[stage] + latency[stage] + hop)
    found = {}
    for name, some in waits.items():
        needed = before[name] + latency[name] + behind[name]
        share = max(query.slo - needed, 0.0) * behind[name] / needed
        found[name] = min(float(np.quantile(some, quantile)), share)
    return found
