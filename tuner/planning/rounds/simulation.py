"""Replays a log round by round: jobs that came since the last round are allotted, admitted and placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tuner.planning.packing.load import SessionLoad
from tuner.planning.rounds.allocation import Admission, Rule, admit
from tuner.planning.rounds.placement import PlacedRound, PlacementRule, place_round
from tuner.planning.rounds.replay import InferenceJob

__all__ = ["ReplayedModel", "Round", "replay_rounds"]


class ReplayedModel(NamedTuple):
    """What is known of a model of the log."""

    latency: np.ndarray  # (B+1,) s
    load_seconds: float


class Round(NamedTuple):
    """One round."""

    begin: float
    """s"""
    jobs: int
    admission: Admission
    placed: PlacedRound
    unserved: list[str]
    """Jobs that no accelerator can serve in time."""


def replay_rounds(
    jobs: Sequence[InferenceJob],
    models: Mapping[str, ReplayedModel],
    *,
    accelerators: int,
    seconds: float,
    rule: Rule = "nexus",
    placement: PlacementRule = "locality",
    seed: int = 0,
) -> Iterator[Round]:
    """Yield each round that has jobs; a job lasts one round.

    Args:
        jobs: In the order of their arrival; of models that are known.
        models: By name.
        accelerators: How many there are.
        seconds: Length of a round.
        rule: Of the allocation.
        placement: Of the nodes on accelerators.
        seed: For the random placement.
    """
    generator = np.random.default_rng(seed)
    loaded = [frozenset[str]()] * accelerators
    load_seconds = {name: model.load_seconds for name, model in models.items()}
    # By the quotient itself: 0.5 // 0.1 is 4, and yet 0.5 is not below (4 + 1) * 0.1.
    for number, arrived in groupby(jobs, key=lambda job: job.arrival // seconds):
        now = list(arrived)
        loads = [
            SessionLoad(name=job.name, latency=models[job.model].latency, budget=job.slo, rate=job.rate)
            for job in now
        ]
        admission = admit(rule, loads, accelerators)
        nodes = [frozenset(now[job].model for job, _ in node.loads) for node in admission.nodes]
        placed = place_round(placement, nodes, loaded, load_seconds, generator)
        loaded = placed.loaded
        yield Round(
            number * seconds, len(now), admission, placed, [load.name for load in loads if not load.fits]
        )
