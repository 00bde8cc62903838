"""RRL, Fig. 14: latency tails and broken windows under a strict SLO: p95 within 550 ms (CPU), 520 ms (GPU).

Inception V3 under the Dynamic load (the paper does not name its load). A window counts as broken if its p95
is above the SLO; the distributions are those of the windows' p95.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.experiments.frame.experiment import experiment
from tuner.experiments.frame.result import Result, Row
from tuner.experiments.rrl.study import (
    CPU,
    DYNAMIC_WINDOWS,
    GPU,
    AgentStudy,
    LearningCase,
    agent_rows,
    named,
    relation_rows,
)
from tuner.laboratory.agent_run import AgentRun
from tuner.laboratory.curves import bars, exceeding
from tuner.laboratory.figures import above, draw_bars, draw_ccdf
from tuner.report import style
from tuner.report.series import Series

__all__ = ["CASES", "StrictSlo"]

CASES = tuple(
    LearningCase(
        name=f"Inception on {kind}",
        env=env,
        model="inception",
        workload="dynamic",
        windows=DYNAMIC_WINDOWS,
        arguments={"slo": f"p95={bound}ms", "objective": "strict"},
    )
    for kind, env, bound in (("CPU", CPU, 550), ("GPU", GPU, 520))
)
BOUNDS = {"Inception on CPU": 0.550, "Inception on GPU": 0.520}
"""The SLO of each case, s."""
PUBLISHED = {"capes": 49.9, "deeprm": 43.4}
"""By how many per cent RRL breaks the SLO less often (section 6.5)."""

SHOWN = (
    "windows that broke the SLO",
    "p95",
    "p99",
    "windows to converge",
    "windows not near the oracle",
)


@experiment(
    name="rrl-fig14",
    title="Latency tails and broken windows under a strict SLO",
    paper="RRL",
    minutes=40,
)
class StrictSlo(AgentStudy):
    """Every server under the strict SLO."""

    cases = CASES

    def case_rows(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Row]:
        yield from relation_rows(
            case.name,
            runs,
            "windows that broke the SLO",
            PUBLISHED,
            note='published as "up to", without saying on which server',
        )
        yield from agent_rows(case.name, runs, SHOWN)

    def case_series(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Series]:
        yield from exceeding(runs, lambda t: t.shown["p95"], f"{case.name}: tail")
        yield from bars(runs, lambda f: 100 * f.slo_violations, f"{case.name}: broken")

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw tails on logarithmic axes as in the paper, and beside them how often the SLO was broken."""
        title = f"A strict SLO under the Dynamic load; median and range of {result.seeds} seeds"
        figure, axes = style.figure(title, rows=2, columns=2, size=(11, 7), width_ratios=[1.6, 1.0])
        for line, case in zip(axes, CASES, strict=True):
            draw_ccdf(line[0], named(result.panel(f"{case.name}: tail")), BOUNDS[case.name])
            line[0].set_title(f"{case.name}, p95", loc="right", fontsize=9)
            above(line[0])
            draw_bars(line[1], named(result.panel(f"{case.name}: broken")), "% of the windows")
            line[1].set_title(f"{case.name}: windows above {1e3 * BOUNDS[case.name]:.0f} ms")
        return [style.Drawing(figure, colors=128)]
