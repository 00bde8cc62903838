"""A cluster that serves queries, whose stages call each other, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.cluster.engine import CROWDED
from tuner.cluster.outcome import Outcome
from tuner.cluster.pipelines.kernel import FOLLOWERS, QUERIES, advance_pipeline
from tuner.cluster.pipelines.scenario import PipelineScenario
from tuner.cluster.pipelines.state import (
    Pipeline,
    make_pipeline,
    with_followers,
    with_outstanding,
    with_queries,
)
from tuner.cluster.simulation import Simulation
from tuner.cluster.statistics import quantile
from tuner.measurement import known

__all__ = ["PipelineOutcome", "simulate_pipeline"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineOutcome:
    """What happened to the queries that count."""

    good: int
    """Answered by all stages within the SLO."""
    late: int
    dropped: int
    """Of which some stage dropped a request."""
    mean_latency: float
    """s; of those that were answered; NaN if none was."""
    wasted: float
    """Share of the accelerators' time that was spent on queries which were late or dropped."""
    seconds: float
    latencies: np.ndarray = field(repr=False, compare=False)
    """Answered queries per bin of latency.   # (BINS,)."""
    stages: Outcome = field(repr=False)
    """What happened at the stages, of which each is a session."""

    @property
    def queries(self) -> int:
        """All that count."""
        return self.good + self.late + self.dropped

    @property
    def bad_rate(self) -> float:
        """Share that is late or dropped; 0 if there were none."""
        return 1 - self.good / self.queries if self.queries else 0.0

    @property
    def good_rate(self) -> float:
        """Good queries/s."""
        return self.good / self.seconds

    def latency(self, share: float) -> float:
        """Return the latency that a share of the answered queries stays within, s."""
        return quantile(self.latencies, share)

    def to_json(self) -> dict[str, Any]:
        """Return what ``tuner simulate --json`` stores of a query."""
        return {
            "queries": self.queries,
            "good": self.good,
            "late": self.late,
            "dropped": self.dropped,
            "bad_rate": self.bad_rate,
            "good_rate": self.good_rate,
            "p50_ms": known(self.latency(0.50) * 1e3),
            "p99_ms": known(self.latency(0.99) * 1e3),
            "wasted": self.wasted,
            "utilisation": [round(share, 6) for share in self.stages.utilisation],
            "stages": [session.to_json() for session in self.stages.sessions],
        }


class _PipelineSimulation(Simulation):
    """A simulation whose requests come from queries and from other requests."""

    def __init__(self, scenario: PipelineScenario) -> None:
        super().__init__(scenario)
        depth = self._execution.sent.shape[1]
        self.pipeline: Pipeline = make_pipeline(scenario.stages(), self._policy[0], depth, scenario.seed)

    def _advance(self, until: float) -> int:
        return advance_pipeline(
            self._policy, self._execution, self._chunk, self._totals, self.pipeline, until
        )

    def _continue_after(self, status: int) -> None:
        if status == QUERIES:
            self.pipeline = with_queries(self.pipeline)
        elif status == FOLLOWERS:
            self.pipeline = with_followers(self.pipeline)
        else:
            super()._continue_after(status)
            if status == CROWDED:
                self.pipeline = with_outstanding(self.pipeline)


def simulate_pipeline(scenario: PipelineScenario) -> PipelineOutcome:
    """Simulate queries from beginning to end, and return what happened to those that count."""
    simulation = _PipelineSimulation(scenario)
    begin, end, last = scenario.interval
    simulation.measure(begin, end)
    board = simulation.pipeline.board[0]
    board.begin, board.end = begin, end
    simulation.advance(last)
    simulation.drain()
    answered = int(board.good + board.late)
    return PipelineOutcome(
        good=int(board.good),
        late=int(board.late),
        dropped=int(board.dropped),
        mean_latency=float(board.latency) / answered if answered else float("nan"),
        wasted=float(board.wasted / board.spent) if board.spent else 0.0,
        seconds=end - begin,
        latencies=simulation.pipeline.latencies,
        stages=simulation.outcome(),
    )
