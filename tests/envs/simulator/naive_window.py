"""Plain twin of the compiled windows: one server, one window, Python lists and numpy's own quantiles."""

from __future__ import annotations

import numpy as np

from tests.naive import NaiveBatcher
from tuner.envs.simulator.batcher import Batching, Machine
from tuner.envs.simulator.window import Jobs, Plans, RequestDraws, Span


def naive_window(plans: Plans, jobs: Jobs, draws: RequestDraws, span: Span, job: int) -> dict[str, float]:
    """Return what one window shows."""
    number, rate, row = int(jobs.configuration[job]), float(jobs.rate[job]), int(jobs.row[job])
    batching = Batching(
        int(plans.max_batch[number]),
        float(plans.delay[number]),
        int(plans.instances[number]),
        float(plans.closing[number]),
    )
    machine = Machine(
        profile=plans.profile[number],
        gap=float(plans.gap[number]),
        contention=float(plans.contention[number]),
        cores=float(plans.cores[number]),
        threads=float(plans.threads[number]),
        background=float(plans.front[number]) * rate,
        switching=float(plans.switching[number]),
    )
    noise, overhead, size = (
        np.broadcast_to(table, draws.come.shape)[row] for table in (draws.noise, draws.overhead, draws.size)
    )
    come = draws.come[row] / rate
    requests = [r for r in zip(come, noise, overhead, size, strict=True) if r[0] <= span.end]
    early = [request for request in requests if request[0] <= span.start]
    server = NaiveBatcher(slots=batching.instances)
    server.advance(batching, machine, early, span.start)
    busy, queued, computed = server.busy_seconds, server.queued, server.computed
    done = len(server.executions)
    answered = sum(size for size, _ in server.executions)
    server.advance(batching, machine, requests[len(early) :], span.end)
    busy = server.busy_seconds - busy
    server.advance(batching, machine, [], 1e15)
    latency = np.array([server.latency[number] for number in range(len(early), len(requests))])
    answered = sum(size for size, _ in server.executions) - answered
    empty = not answered
    p50, p95, p99 = np.quantile(latency, [0.5, 0.95, 0.99]) if latency.size else [np.nan] * 3
    return {
        "requests": latency.size,
        "mean": float(latency.mean()) if latency.size else np.nan,
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "queue_mean": np.nan if empty else (server.queued - queued) / answered,
        "compute_mean": np.nan if empty else (server.computed - computed) / answered,
        "batch_mean": np.nan if empty else answered / (len(server.executions) - done),
        "busy": busy,
    }
