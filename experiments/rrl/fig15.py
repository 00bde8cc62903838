"""RRL, Fig. 15: the least CPU or GPU under a loose SLO and the Dynamic load.

DeepSpeech and Inception ResNet V2 on the CPU server, Inception V3 on the GPU server, with the paper's SLOs
(caption of the figure); the paper does not say of which statistic, and ours is the p95.
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
from tuner.laboratory.curves import over_time
from tuner.laboratory.figures import above, draw_time
from tuner.objective import parse_slo
from tuner.report import style
from tuner.report.series import Series

__all__ = ["CASES", "LeastResources"]

CASES = tuple(
    LearningCase(
        name=f"{label} on {kind.upper()}",
        env=env,
        model=model,
        workload="dynamic",
        windows=DYNAMIC_WINDOWS,
        arguments={"slo": f"p95={slo}ms", "objective": kind},
    )
    for label, model, kind, env, slo in (
        ("DeepSpeech", "deepspeech", "cpu", CPU, 2400),
        ("ResNet", "resnet", "cpu", CPU, 3200),
        ("Inception", "inception", "gpu", GPU, 1850),
    )
)
PUBLISHED = {
    "DeepSpeech on CPU": {"capes": 13.4, "deeprm": 8.5},
    "ResNet on CPU": {"capes": 52.9, "deeprm": 46.8},
    "Inception on GPU": {"capes": 10.6, "deeprm": 12.9},
}
"""By how many per cent RRL uses less than the rival (section 6.6)."""

SHOWN = ("windows that broke the SLO", "p95", "windows to converge", "windows not near the oracle")


@experiment(
    name="rrl-fig15",
    title="The least CPU or GPU under a loose SLO",
    paper="RRL",
    minutes=30,
)
class LeastResources(AgentStudy):
    """Every model under the loose SLO."""

    cases = CASES

    def case_rows(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Row]:
        use = f"{case.arguments['objective'].upper()} use"
        yield from relation_rows(case.name, runs, use, PUBLISHED[case.name])
        yield from agent_rows(case.name, runs, (use, *SHOWN))

    def case_series(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Series]:
        yield from over_time(runs, lambda t: 1e3 * t.shown["p95"], f"{case.name}: latency")
        yield from over_time(runs, lambda t: t.shown[case.arguments["objective"]], f"{case.name}: use")
        yield from over_time(runs[:1], lambda t: t.rate, f"{case.name}: load")
        slo = 1e3 * parse_slo(case.arguments["slo"]).latency
        yield Series(name="SLO", panel=f"{case.name}: SLO", x=[0, case.windows], y=[slo, slo])

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw as in the paper: a row for each model; the load, the latency against the SLO, the use."""
        title = f"Least resources under a loose SLO; median and range of {result.seeds} seeds"
        figure, axes = style.figure(
            title, rows=len(CASES), columns=3, size=(13, 8.4), width_ratios=[0.7, 1.0, 1.0]
        )
        for line, case in zip(axes, CASES, strict=True):
            for one in result.panel(f"{case.name}: load"):
                line[0].plot(one.x, one.y, color=style.MUTED, lw=1.2)
            line[0].set(ylabel="requests/s", xlabel="window", ylim=(0, None))
            line[0].set_title(f"{case.name}: load")
            draw_time(line[1], named(result.panel(f"{case.name}: latency")), "p95, ms", log=True)
            for one in result.panel(f"{case.name}: SLO"):
                line[1].plot(one.x, one.y, color=style.INK, ls="--", lw=1, label="SLO")
            above(line[1])
            unit = "share of the GPU" if case.arguments["objective"] == "gpu" else "cores in use"
            draw_time(line[2], named(result.panel(f"{case.name}: use")), unit, log=False)
            above(line[2])
        return [style.Drawing(figure, colors=32)]
