"""The state of queries whose stages call each other, which the compiled functions of ``kernel`` modify."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tuner.cluster.statistics import BINS
from tuner.errors import InvalidInput
from tuner.scheduling.vocabulary import Cluster, records

__all__ = [
    "Pipeline",
    "PipelineSpec",
    "StageSpec",
    "make_pipeline",
    "with_followers",
    "with_outstanding",
    "with_queries",
]

FIRST_QUERIES = 64
"""Queries that there is room for at first."""
DRAWS = 1 << 16
CALLS = 12
"""Stream of random numbers that shares the seed with those of the arrivals."""
MOST_CALLS = 10_000

BOARD = np.dtype(
    [
        ("free", "i8"),  # the first unused slot of a query, -1 if there is none
        ("head", "i8"),  # of the requests that are on their way to a stage, counted without wrapping
        ("tail", "i8"),
        ("drawn", "i8"),  # random numbers used so far
        ("noted", "i8"),  # 1: the commands of the last event are taken account of
        ("carried", "i8"),  # 1: deadlines count from the query's arrival, 0: from the request's
        ("proactive", "i8"),  # 1: the deadlines of stages follow what those behind them need at present
        ("hop", "f8"),  # s from the end of a batch to the arrival at the next stage
        ("slo", "f8"),  # s, of a query
        ("begin", "f8"),  # s, from when on queries count
        ("end", "f8"),  # s, until when
        ("good", "i8"),
        ("late", "i8"),  # all stages answered, but too late
        ("dropped", "i8"),  # some stage refused
        ("latency", "f8"),  # s, summed over those that were answered
        ("spent", "f8"),  # s of accelerators for queries that count
        ("wasted", "f8"),  # s of that for queries that were late or dropped
    ],
    align=True,
)
STAGE = np.dtype(
    [
        ("first", "i8"),  # its first call; the others follow
        ("calls", "i8"),
        ("callers", "i8"),
        ("wait", "f8"),  # s from arrival at the stage to the start of the execution, of late
        ("execution", "f8"),  # s of a batch, of late
        ("seen", "f8"),  # s, when the last batch was sent
        ("gathering", "f8"),  # s, what batches of the stages behind wait for at most, as a rule
        ("behind", "f8"),  # s, what the stages behind it need
    ],
    align=True,
)
CALL = np.dtype([("stage", "i8"), ("gamma", "f8")], align=True)
QUERY = np.dtype(
    [
        ("arrival", "f8"),  # s
        ("spent", "f8"),  # s of accelerators
        ("left", "i8"),  # stages that are not over
        ("failed", "i8"),  # 1: a request of it was dropped
        ("following", "i8"),  # the next unused slot, if this one is unused
    ],
    align=True,
)
PART = np.dtype(
    [
        ("callers", "i8"),  # calling stages that are not over; -1: the stage itself is over
        ("outstanding", "i8"),  # requests that are not answered
        ("made", "i8"),  # requests so far
        ("due", "f8"),  # requests of a stage that waits for several callers, on average
        ("came", "f8"),  # s, when the last request arrived at the stage
    ],
    align=True,
)
FOLLOWER = np.dtype([("time", "f8"), ("number", "i8")], align=True)


class Pipeline(NamedTuple):
    """Queries on their way; all arrays are modified in place. A request's number is ``slot * S + stage``."""

    board: np.ndarray  # (1,) BOARD
    stages: np.ndarray  # (S,) STAGE, each after its callers
    calls: np.ndarray  # (C,) CALL
    queries: np.ndarray  # (Q,) QUERY
    parts: np.ndarray  # (Q, S) PART
    followers: np.ndarray  # (F,) FOLLOWER, a ring in order of time
    sent: np.ndarray  # (N, D, B+1) numbers of outstanding batches from index 1 on; [.., 0] is how many
    tails: np.ndarray  # (N,) batches sent to each accelerator so far
    latencies: np.ndarray  # (BINS,) answered queries per bin of latency
    draws: np.ndarray  # uniform random numbers, used again and again


class StageSpec(NamedTuple):
    """One stage as the engine needs it."""

    calls: tuple[tuple[int, float], ...]
    """(stage, gamma)."""
    execution: float
    """s that its planned batch takes."""
    gathering: float
    """s that its requests, behind it, wait at most for batches to gather, as a rule."""


class PipelineSpec(NamedTuple):
    """The query as the engine needs it."""

    stages: tuple[StageSpec, ...]
    """Each after its callers."""
    slo: float
    hop: float
    carried: bool
    proactive: bool


def make_pipeline(spec: PipelineSpec, cluster: Cluster, depth: int, seed: int) -> Pipeline:
    """Return the state at time 0.

    Args:
        spec: Of the query.
        cluster: The policy's; stage s is its session s.
        depth: Outstanding batches that there is room for on each accelerator.
        seed: Of the numbers of calls.
    """
    count = len(spec.stages)
    stages, calls = records(count, STAGE), records(sum(len(one.calls) for one in spec.stages) or 1, CALL)
    first = 0
    for index, one in enumerate(spec.stages):
        stages[index].first, stages[index].calls = first, len(one.calls)
        stages[index].wait, stages[index].execution = one.execution / 2, one.execution
        stages[index].gathering = one.gathering
        for called, gamma in one.calls:
            calls[first] = (called, gamma)
            stages[called].callers += 1
            first += 1
    board = records(1, BOARD)
    board[0].noted, board[0].hop, board[0].slo, board[0].end = 1, spec.hop, spec.slo, np.inf
    board[0].carried, board[0].proactive = spec.carried, spec.proactive
    queries, parts = _empty_queries(FIRST_QUERIES, count)
    largest = cluster.latency.shape[2] - 1
    accelerators = cluster.accelerators.size
    return Pipeline(
        board=board,
        stages=stages,
        calls=calls,
        queries=queries,
        parts=parts,
        followers=records(1 << (4 * largest * _most_calls(spec)).bit_length(), FOLLOWER),
        sent=np.zeros((accelerators, depth, largest + 1), np.int64),
        tails=np.zeros(accelerators, np.int64),
        latencies=np.zeros(BINS, np.int64),
        draws=np.random.default_rng((seed, CALLS)).random(DRAWS),
    )


def _most_calls(spec: PipelineSpec) -> int:
    """Return how many requests one answer can cause at most, at once."""
    most, total = [1.0] + [0.0] * (len(spec.stages) - 1), 1.0
    for index, one in enumerate(spec.stages):
        for called, gamma in one.calls:
            most[called] = max(most[called], most[index] * math.ceil(gamma + 1))
        total += most[index]
    if total > MOST_CALLS:
        raise InvalidInput("gamma", f"one query makes up to {total:.3g} requests", f"at most {MOST_CALLS:,}")
    return int(total)


def _empty_queries(slots: int, stages: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return unused slots, each with the number of the next, and their parts."""
    queries = records(slots, QUERY)
    queries["following"] = [*range(first + 1, first + slots), -1]
    return queries, records((slots, stages), PART)


def with_queries(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline with room for twice as many queries; all slots of the old one are in use."""
    count, stages = pipeline.parts.shape
    queries, parts = _empty_queries(count, stages, count)
    pipeline.board[0].free = count
    return pipeline._replace(
        queries=np.concatenate((pipeline.queries, queries)).view(np.recarray),
        parts=np.concatenate((pipeline.parts, parts)).view(np.recarray),
    )


def with_followers(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline with room for twice as many requests on their way."""
    size = pipeline.followers.size
    larger = records(2 * size, FOLLOWER)
    positions = np.arange(pipeline.board[0].head, pipeline.board[0].tail)
    larger[positions & (2 * size - 1)] = pipeline.followers[positions & (size - 1)]
    return pipeline._replace(followers=larger)


def with_outstanding(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline with room for twice as many outstanding batches on each accelerator."""
    count, depth, size = pipeline.sent.shape
    larger = np.zeros((count, 2 * depth, size), np.int64)
    for accelerator in range(count):
        tail = pipeline.tails[accelerator]
        positions = np.arange(max(tail - depth, 0), tail)
        larger[accelerator, positions & (2 * depth - 1)] = pipeline.sent[accelerator, positions & (depth - 1)]
    return pipeline._replace(sent=larger)
