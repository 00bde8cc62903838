"""Queries in the virtual-time engine: the answers of one stage become the requests of the next.

Rules
-----
* A query arrives at its first stage. Each request that a stage answers calls the next stages, gamma times on
  average; the requests arrive there a hop later. A stage with several callers waits until all of them are
  over, and gets the most requests that one of them causes.
* Events are those of :mod:`tuner.cluster.engine`; at one instant requests from stages come before new
  queries.
* A query is good if all its requests were answered within its SLO; it fails when one of them is dropped, and
  makes no further calls then. What waits of it elsewhere is not called back.
* Proactive deadlines (PARD, arXiv 2602.08747): the deadline of a stage leaves the time that the stages behind
  it need at present: hops, executions, the waiting beyond that for a batch to gather, and what
  batches wait at most, as a rule. Waiting and execution are means over about a second.
* In which order a stage serves what waits there is the policy's: `nexus` has that of PARD as an option.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.cluster.engine import EVENTS, LOGGED, MORE, call_finish, call_wake, settle
from tuner.cluster.pipelines.state import Pipeline
from tuner.cluster.statistics import SLACK, latency_bin
from tuner.scheduling.policy import arrive
from tuner.scheduling.tournament import least_index, least_key
from tuner.scheduling.vocabulary import DISPATCH, OK, Cluster

if TYPE_CHECKING:
    from tuner.cluster.execution import Execution
    from tuner.cluster.requests import Chunk
    from tuner.cluster.statistics import Totals

__all__ = ["FOLLOWERS", "QUERIES", "advance_pipeline"]

# Statuses besides those of the engine: do what they say, then call again.
QUERIES = 7  # all slots of queries are in use: `with_queries`
FOLLOWERS = 8  # too many requests are on their way to a stage: `with_followers`

SECONDS = 1.0
"""Over which waiting and execution are averaged."""


@njit_flat
def advance_pipeline(  # noqa: PLR0911, PLR0912, PLR0917 - one event loop; a kernel has no keywords
    policy: Any, execution: Execution, chunk: Chunk, totals: Totals, pipeline: Pipeline, until: float
) -> int:
    """Let time pass up to, not including, a time; see :func:`tuner.cluster.engine.advance`.

    Args:
        policy: The policy's state; modified in place.
        execution: Where the accelerators stand; modified in place.
        chunk: The queries that arrive.
        totals: The counts of requests; modified in place.
        pipeline: The queries on their way, and their counts; modified in place.
        until: s.
    """
    clock, board, mine = execution.clock, policy[0].board, pipeline.board
    for _ in range(EVENTS):
        status = settle(policy[0], execution, totals)
        if status != OK:
            return status
        if mine[0].noted == 0:
            note_commands(policy[0], execution, pipeline)
            mine[0].noted = 1
        if execution.log.size and execution.log.size - clock[0].logged <= policy[0].commands.size:
            return LOGGED
        if 2 * (mine[0].tail - mine[0].head) > pipeline.followers.size:
            return FOLLOWERS
        end = least_key(execution.ends)
        follower = np.inf
        if mine[0].head < mine[0].tail:
            follower = pipeline.followers[mine[0].head & (pipeline.followers.size - 1)].time
        arrival = chunk.time[clock[0].taken] if clock[0].taken < chunk.time.size else np.inf
        timer = max(board[0].wake_at, clock[0].now)
        if not min(end, follower, arrival, timer) < until:
            clock[0].now = until if until < np.inf else clock[0].now
            return OK
        if end <= follower and end <= arrival and end <= timer:
            accelerator = least_index(execution.ends)
            status = call_finish(policy, execution, end)
            if status == OK:
                answer_batch(execution, pipeline, accelerator, end)
        elif follower <= timer or arrival <= timer:
            status = call_arrive(policy, execution, chunk, pipeline, arrival < follower)
        elif min(end, follower, arrival, until) == np.inf and clock[0].answered == clock[0].arrived:
            return OK
        else:
            status = call_wake(policy, execution, timer)
        if status != OK:
            return status
        mine[0].noted = 0
    return MORE


@njit_inline
def call_arrive(policy: Any, execution: Execution, chunk: Chunk, pipeline: Pipeline, first: bool) -> int:
    """Call the policy with the next query's first request, or with the next request from another stage.

    Modifies all but ``chunk``.
    """
    clock, board, stages = execution.clock, pipeline.board, pipeline.stages.size
    if first:
        now, number, early = chunk.time[clock[0].taken], board[0].free * stages, 0.0
        if number < 0:
            return QUERIES
    else:
        place = board[0].head & (pipeline.followers.size - 1)
        now, number = pipeline.followers[place].time, pipeline.followers[place].number
        early = now - pipeline.queries[number // stages].arrival if board[0].carried else 0.0
    policy[0].board[0].early = early
    status = arrive(policy, number % stages, 0, number, now)
    if status != OK:
        return status
    if first:
        clock[0].taken += 1
        begin_query(pipeline, now)
    else:
        board[0].head += 1
        pipeline.parts[number // stages, number % stages].came = now
    clock[0].now = now
    clock[0].carried = 0
    clock[0].stalls = 0
    clock[0].arrived += 1
    return OK


@njit_flat
def begin_query(pipeline: Pipeline, now: float) -> None:
    """Take the next slot for a query, whose first request has arrived. Modifies ``pipeline``."""
    slot = pipeline.board[0].free
    pipeline.board[0].free = pipeline.queries[slot].following
    pipeline.queries[slot].arrival = now
    pipeline.queries[slot].spent = 0.0
    pipeline.queries[slot].left = pipeline.stages.size
    pipeline.queries[slot].failed = 0
    for stage in range(pipeline.stages.size):
        pipeline.parts[slot, stage].callers = pipeline.stages[stage].callers
        pipeline.parts[slot, stage].outstanding = 0
        pipeline.parts[slot, stage].made = 0
        pipeline.parts[slot, stage].due = 0.0
    pipeline.parts[slot, 0].outstanding = 1
    pipeline.parts[slot, 0].made = 1
    pipeline.parts[slot, 0].came = now


@njit_flat
def note_commands(cluster: Cluster, execution: Execution, pipeline: Pipeline) -> None:
    """Note which requests were sent and dropped by the last event. Modifies ``cluster`` and ``pipeline``."""
    now, mask = execution.clock[0].now, cluster.waiting.shape[1] - 1
    for command in range(cluster.board[0].commands):
        queue, first = cluster.commands[command].queue, cluster.commands[command].first
        if cluster.commands[command].kind == DISPATCH:
            note_batch(cluster, execution, pipeline, command)
            continue
        for position in range(first, first + cluster.commands[command].count):
            number = cluster.waiting[queue, position & mask].number
            slot, stage = number // pipeline.stages.size, number % pipeline.stages.size
            pipeline.queries[slot].failed = 1
            pipeline.parts[slot, stage].outstanding -= 1
            close(pipeline, slot, now)
    if pipeline.board[0].proactive and cluster.board[0].commands:
        update_budgets(cluster, pipeline, now)


@njit_flat
def note_batch(cluster: Cluster, execution: Execution, pipeline: Pipeline, command: int) -> None:
    """Keep the numbers of a batch until it ends, and learn from it. Modifies ``pipeline``."""
    queue, first = cluster.commands[command].queue, cluster.commands[command].first
    count, stage = cluster.commands[command].count, cluster.commands[command].session
    accelerator, mask = cluster.commands[command].accelerator, cluster.waiting.shape[1] - 1
    place = pipeline.tails[accelerator] & (pipeline.sent.shape[1] - 1)
    pipeline.tails[accelerator] += 1
    start, end = execution.sent[accelerator, place].start, execution.sent[accelerator, place].end
    pipeline.sent[accelerator, place, 0] = count
    waited = 0.0
    for index in range(count):
        number = cluster.waiting[queue, (first + index) & mask].number
        pipeline.sent[accelerator, place, index + 1] = number
        slot = number // pipeline.stages.size
        pipeline.queries[slot].spent += (end - start) / count
        waited += start - pipeline.parts[slot, stage].came
    now = execution.clock[0].now
    weight = 1 - math.exp((pipeline.stages[stage].seen - now) / SECONDS)
    pipeline.stages[stage].wait += weight * (waited / count - pipeline.stages[stage].wait)
    pipeline.stages[stage].execution += weight * (end - start - pipeline.stages[stage].execution)
    pipeline.stages[stage].seen = now


@njit_flat
def update_budgets(cluster: Cluster, pipeline: Pipeline, now: float) -> None:
    """Set each stage's budget so that the later stages have the time they need at present.

    Args:
        cluster: The budgets of its sessions, s, are modified in place.
        pipeline: ``behind`` of each stage, s, is modified in place.
        now: s.
    """
    for stage in range(pipeline.stages.size - 1, -1, -1):
        behind, first = 0.0, pipeline.stages[stage].first
        for call in range(first, first + pipeline.stages[stage].calls):
            called = pipeline.calls[call].stage
            execution = pipeline.stages[called].execution
            # The waiting beyond half an execution, which a gathering batch takes anyhow; old values fade.
            excess = max(pipeline.stages[called].wait - execution / 2, 0.0)
            excess *= math.exp((pipeline.stages[called].seen - now) / SECONDS)
            own = pipeline.board[0].hop + execution + excess + pipeline.stages[called].behind
            behind = max(behind, own)
        pipeline.stages[stage].behind = behind
        cluster.sessions[stage].budget = pipeline.board[0].slo - behind - pipeline.stages[stage].gathering


@njit_flat
def answer_batch(execution: Execution, pipeline: Pipeline, accelerator: int, now: float) -> None:
    """Let the answers of a batch that has ended make their calls. ``pipeline`` is modified in place."""
    place = (execution.lines[accelerator].head - 1) & (pipeline.sent.shape[1] - 1)
    for index in range(pipeline.sent[accelerator, place, 0]):
        number = pipeline.sent[accelerator, place, index + 1]
        slot, stage = number // pipeline.stages.size, number % pipeline.stages.size
        pipeline.parts[slot, stage].outstanding -= 1
        first = pipeline.stages[stage].first
        for call in range(first, first + pipeline.stages[stage].calls):
            called = pipeline.calls[call].stage
            if pipeline.stages[called].callers == 1 and not pipeline.queries[slot].failed:
                launch(pipeline, slot, called, pipeline.calls[call].gamma, now)
        close(pipeline, slot, now)


@njit_flat
def launch(pipeline: Pipeline, slot: int, stage: int, mean: float, now: float) -> None:
    """Send requests of a query to a stage, ``mean`` of them on average. ``pipeline`` is modified in place."""
    board = pipeline.board
    count = int(mean + pipeline.draws[board[0].drawn & (pipeline.draws.size - 1)])
    board[0].drawn += 1
    pipeline.parts[slot, stage].outstanding += count
    pipeline.parts[slot, stage].made += count
    for _ in range(count):
        place = board[0].tail & (pipeline.followers.size - 1)
        pipeline.followers[place].time = now + board[0].hop
        pipeline.followers[place].number = slot * pipeline.stages.size + stage
        board[0].tail += 1


@njit_flat
def close(pipeline: Pipeline, slot: int, now: float) -> None:
    """Close the stages of a query that are over, and the query with the last. ``pipeline`` is modified."""
    failed = pipeline.queries[slot].failed
    for stage in range(pipeline.stages.size):
        if pipeline.parts[slot, stage].callers != 0 or pipeline.parts[slot, stage].outstanding != 0:
            continue
        pipeline.parts[slot, stage].callers = -1
        pipeline.queries[slot].left -= 1
        first = pipeline.stages[stage].first
        for call in range(first, first + pipeline.stages[stage].calls):
            called = pipeline.calls[call].stage
            due = pipeline.parts[slot, stage].made * pipeline.calls[call].gamma
            pipeline.parts[slot, called].due = max(pipeline.parts[slot, called].due, due)
            pipeline.parts[slot, called].callers -= 1
            if (
                pipeline.stages[called].callers > 1
                and pipeline.parts[slot, called].callers == 0
                and not failed
            ):
                launch(pipeline, slot, called, pipeline.parts[slot, called].due, now)
    if pipeline.queries[slot].left == 0:
        count_query(pipeline, slot, now)


@njit_flat
def count_query(pipeline: Pipeline, slot: int, now: float) -> None:
    """Count a query that is over, and free its slot. ``pipeline`` is modified in place."""
    board, arrival = pipeline.board, pipeline.queries[slot].arrival
    if board[0].begin <= arrival < board[0].end:
        spent, latency = pipeline.queries[slot].spent, now - arrival
        board[0].spent += spent
        if pipeline.queries[slot].failed:
            board[0].dropped += 1
            board[0].wasted += spent
        else:
            board[0].latency += latency
            pipeline.latencies[latency_bin(latency)] += 1
            if latency > board[0].slo + SLACK:
                board[0].late += 1
                board[0].wasted += spent
            else:
                board[0].good += 1
    pipeline.queries[slot].following = board[0].free
    board[0].free = slot
