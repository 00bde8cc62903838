"""RRL, section 6.2: windows until near the oracle for good, for RRL and everything it is compared with.

Inception V3 on the CPU server (1,331 configurations) and on the GPU server under a constant load. No agent
has windows of these servers; the default form of RRL brings a network that was trained on random ones. Beside
the paper's rivals there are those that people use: Optuna's two samplers, the quick search of Triton's Model
Analyzer, Clipper's rule, and random search. All have the same windows and arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tuner.experiments.frame.experiment import experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.rrl.study import (
    CPU,
    FORMS,
    GPU,
    LEARNING,
    MEAN,
    TIMES_FEWER,
    AgentStudy,
    LearningCase,
    agent_rows,
    named,
    of_agent,
)
from tuner.laboratory.agent_run import AgentRun
from tuner.laboratory.curves import bars, over_time
from tuner.laboratory.figures import above, draw_bars, draw_time
from tuner.report import style
from tuner.report.series import Series

__all__ = ["CASES", "RivalAgents"]

WINDOWS = 600
AGENTS = (
    "rrl", *FORMS, "q_learning", "capes", "capes_level", "deeprm",
    "tpe", "gp", "hill_climb", "clipper_aimd", "random",
)  # fmt: skip
CASES = tuple(
    LearningCase(
        name=f"Inception on {kind}",
        env=env,
        model="inception",
        workload="constant",
        windows=WINDOWS,
        arguments=MEAN,
    )
    for kind, env in (("CPU", CPU), ("GPU", GPU))
)
FASTER = {"capes": TIMES_FEWER, "deeprm": TIMES_FEWER}


@experiment(
    name="rrl-rivals",
    title="Windows until near the oracle for good: RRL and all that it is compared with",
    paper="RRL",
    minutes=30,
)
class RivalAgents(AgentStudy):
    """Every agent on both servers under a constant load."""

    cases = CASES
    agents = AGENTS

    def case_rows(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Row]:
        yield from agent_rows(case.name, runs, LEARNING)
        yield from _times_fewer(case.name, runs)

    def case_series(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Series]:
        yield from over_time(runs, lambda t: t.expected / t.best, f"{case.name}: cost")
        yield from bars(runs, lambda f: f.windows_to_converge, f"{case.name}: windows")

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the cost over the oracle's, window by window, and the windows to converge."""
        title = f"Windows until near the oracle, constant load; median and range of {result.seeds} seeds"
        figure, axes = style.figure(title, rows=2, columns=2, size=(12, 7.2), width_ratios=[1.1, 1.0])
        for line, case in zip(axes, CASES, strict=True):
            cost = named(result.panel(f"{case.name}: cost"))
            draw_time(line[0], cost, f"{case.name}: cost over the oracle's", log=True, band=False)
            above(line[0])
            windows = named(result.panel(f"{case.name}: windows"))
            draw_bars(line[1], windows, "windows to converge", most=float(WINDOWS))
            line[1].set_title(f"{case.name}: windows to converge")
        return [style.Drawing(figure, colors=128)]


def _times_fewer(case: str, runs: Sequence[AgentRun]) -> Iterator[Row]:
    """Return how many times fewer windows RRL needs than each rival, seed by seed."""
    ours = [f.windows_to_converge for f in of_agent(runs, AGENTS[0])]
    for rival in AGENTS[1:]:
        theirs = [f.windows_to_converge for f in of_agent(runs, rival)]
        if any(math.isnan(windows) for windows in theirs):
            continue
        # Other forms of RRL have the first of the seeds only.
        ratios = [min(b, float(WINDOWS)) / max(a, 1.0) for a, b in zip(ours, theirs, strict=False)]
        never = sum(map(math.isinf, theirs))
        note = f"at least: {never} of {len(theirs)} never converged" if never else ""
        yield row(f"{case}: times fewer windows than {rival}", ratios, published=FASTER.get(rival), note=note)
