"""RRL's figures: relations, curves, and that each can be run and drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.experiments.quick import quick
from tests.laboratory.agent_runs import made_run
from tuner.experiments.frame.experiment import Experiment
from tuner.experiments.frame.result import Result, Row
from tuner.experiments.rrl.fig11 import IDENTITY, NETWORK, LearnedRegion, RegionSize
from tuner.experiments.rrl.fig12 import CpuLatency
from tuner.experiments.rrl.fig13 import GpuLatency
from tuner.experiments.rrl.fig14 import StrictSlo
from tuner.experiments.rrl.fig15 import LeastResources
from tuner.experiments.rrl.latency import LatencyStudy
from tuner.experiments.rrl.rivals import RivalAgents
from tuner.experiments.rrl.study import TIMES_FEWER, agent_rows, fewer_rows, relation_rows, times_fewer
from tuner.laboratory.agent_run import AgentRun
from tuner.laboratory.curves import bars, exceeding, over_time
from tuner.laboratory.figures import comparison_figures, draw_bars
from tuner.report import style
from tuner.report.series import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[3] / "experiments" / "results"


def runs() -> list[AgentRun]:
    """Two seeds of two agents; CAPES needs twice as long, and half as long again with seed 1."""
    found = []
    for seed in (0, 1):
        for agent, mean in (("rrl", 0.1), ("capes", 0.2 + 0.2 * seed)):
            values = np.full(40, mean)
            broken = np.arange(40) < (10 if agent == "capes" else 0)
            found.append(
                made_run(
                    agent=agent, seed=seed, cost=10 * values, mean=values, p95=2 * values,
                    kept=1.0 - broken, expected=1.0 + broken, best=np.ones(40),
                )
            )  # fmt: skip
    return found


def test_relations_are_seed_by_seed() -> None:
    """RRL is 50 and 75 % below; the published value stands beside the median."""
    (found,) = relation_rows("Inception, WiKi", runs(), "mean latency", {"capes": 50.6})

    assert (found.measured, found.low, found.high, found.published) == (62.5, 50.0, 75.0, 50.6)
    assert found.id == "Inception, WiKi: mean latency of RRL below CAPES"


def test_a_rival_without_any_leaves_nothing_to_compare() -> None:
    """As when it never broke the SLO."""
    swapped = [t._replace(kept=np.ones(40)) for t in runs()]

    (found,) = relation_rows("x", swapped, "windows that broke the SLO", {"capes": 1.0})

    assert found.measured is None
    assert found.note == "the rival had none"


def test_seeds_without_any_are_counted() -> None:
    """CAPES broke the SLO with seed 1 only: what is compared there is not of all seeds."""
    kept = [t._replace(kept=np.ones(40)) if t.spec.seed == 0 else t for t in runs()]

    (some,) = relation_rows("x", kept, "windows that broke the SLO", {"capes": 1.0}, note="in passing")
    (every,) = relation_rows("x", runs(), "windows that broke the SLO", {"capes": 1.0}, note="in passing")

    assert (some.measured, some.note) == (100.0, "in passing; on 1 of 2 seeds the rival had none")
    assert (every.measured, every.note) == (100.0, "in passing")


def test_agents_have_their_own_rows() -> None:
    """Medians over seeds; what was never measured has none."""
    unknown = [run._replace(best=np.full(40, np.nan)) for run in runs()]

    rows = agent_rows("x", unknown, ("mean latency", "mean cost above the oracle's"))

    assert [(row.id, row.measured) for row in rows] == [
        ("x, RRL: mean latency", 100.0),
        ("x, CAPES: mean latency", 300.0),
    ]


def test_curves_are_medians_with_their_range() -> None:
    """Over time, beyond a value, and as bars."""
    latest = next(one for one in over_time(runs(), lambda t: t.cost) if one.name == "capes")
    tail = exceeding(runs(), lambda t: t.shown["p95"])
    broken = bars(runs(), lambda f: f.slo_violations)

    assert (latest.y[-1], latest.low[-1], latest.high[-1]) == (3.0, 2.0, 4.0)
    assert tail[0].y[0] == 1.0
    assert tail[0].y[-1] is None
    assert [one.y for one in broken] == [[0.0], [0.25]]


def bar(
    name: str, place: float, middle: float | None, low: float | None = None, high: float | None = None
) -> Series:
    return Series(name=name, x=[place], y=[middle], low=[low], high=[high])


def drawn_bars(series: list[Series], most: float | None = None) -> tuple[Axes, list[str]]:
    """The panel, and what is written beside each bar."""
    figure, axes = style.figure("x")
    draw_bars(axes[0, 0], series, "windows", most=most)
    figure.draw_without_rendering()
    return axes[0, 0], [text.get_text() for text in axes[0, 0].texts]


def test_bars_where_nobody_converges_have_the_whole_trial_as_their_axis() -> None:
    """As long as the run, not as wide as nothing; all labels are level with their agents."""
    panel, texts = drawn_bars([bar("rrl", 0.0, None), bar("capes", 1.0, None)], most=25.0)

    assert panel.get_xlim() == (0.0, 25.0)
    assert texts == ["none within 25", "none within 25"]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["rrl", "capes"]
    assert panel.get_ylim()[0] > 1.0
    assert panel.get_ylim()[1] < 0.0


def test_bars_say_how_many_seeds_never_converged() -> None:
    """All did, some did not, half or more did not: the range then runs to the edge of the panel."""
    panel, texts = drawn_bars(
        [bar("rrl", 0.0, 26.0, 21.0, 322.0), bar("gp", 1.0, 70.0, 66.0), bar("random", 2.0, None, 69.0)],
        most=600.0,
    )

    assert texts == ["26", "70; some not within 600", "half or more not within 600"]
    ranges = [tuple(line.get_xdata()) for line in panel.lines if len(line.get_xdata()) == 2]  # type: ignore[arg-type]
    assert ranges == [(21.0, 322.0), (66.0, 600.0), (69.0, 600.0)]
    assert len(panel.patches) == 2


def test_bars_of_shares_end_at_the_greatest() -> None:
    """Without a length of the run; where there is nothing but zeros the axis is still one."""
    panel, texts = drawn_bars([bar("rrl", 0.0, 0.5, 0.0, 2.0)])
    zero, _ = drawn_bars([bar("rrl", 0.0, 0.0, 0.0, 0.0)])

    assert panel.get_xlim() == (0.0, 2.1)
    assert texts == ["0.5"]
    assert zero.get_xlim()[1] > 0


def test_fewer_windows_are_a_ratio_of_medians() -> None:
    """A rival that never gets there needs the whole run at least; RRL that never does has no ratio."""
    both = times_fewer("x", 2745.0, 1381.5, windows=3000, least=5.0)
    never = times_fewer("x", None, 30.0, windows=3000, least=8.0)
    short = times_fewer("x", None, 1500.0, windows=3000, least=8.0)
    lost = times_fewer("x", 100.0, None, windows=3000, least=8.0)

    assert (both.measured, both.published) == (1.986971, 5.0)
    assert both.note == "ratio of the medians; at least 5 asked for: missed"
    assert never.measured == 100.0
    assert never.note.startswith("at least: ")
    assert never.note.endswith("reached")
    assert (short.measured, short.note.endswith("missed")) == (2.0, True)
    assert (lost.measured, lost.note.endswith("missed")) == (None, True)


def test_fewer_windows_need_those_of_every_agent() -> None:
    """A row for each rival; none where exact costs are not known."""
    known = {"RRL": 25.0, "CAPES": 200.0, "DeepRM": None}
    rows = [
        Row(id=f"Inception, {name}: windows to converge", measured=value) for name, value in known.items()
    ]

    found = fewer_rows("Inception", rows, "windows to converge", 300, 8.0)

    assert [(row.id, row.measured) for row in found] == [
        ("Inception: times fewer windows to converge than CAPES", 8.0),
        ("Inception: times fewer windows to converge than DeepRM", 12.0),
    ]
    assert fewer_rows("Inception", rows[:2], "windows to converge", 300, 8.0) == []


def test_the_region_and_the_network_have_forms_of_their_own() -> None:
    """Each beside Q-learning; only for delta 1 as the paper has it is a ratio published."""
    experiment = quick(RegionSize)
    tasks = experiment.tasks()
    learned = LearnedRegion(away=10.0, converged=20.0, end=0.0, error=0.1, known=9)

    rows = list(experiment.rows({task: [learned] for task in tasks}))

    assert len({task.label for task in tasks}) == len(tasks)
    for form in (f"delta 0{NETWORK}", f"delta 1{IDENTITY}"):
        found = [row for row in rows if row.id.startswith(f"Inception, {form}: times fewer")]
        assert [(row.measured, row.published) for row in found] == [(1.0, None)] * 2
    assert sum(row.published is not None for row in rows) == 4


@pytest.mark.parametrize("kind", [CpuLatency, GpuLatency])
def test_stored_ratios_are_those_of_the_stored_medians(kind: type[LatencyStudy]) -> None:
    """What the pages say of windows not near the oracle follows from the medians in the same table."""
    stored = Result.load(RESULTS / f"{kind.about.name}.json").rows

    for case in kind.cases:
        for what in ("windows not near the oracle", "windows to converge"):
            found = fewer_rows(case.name, stored, what, case.windows, TIMES_FEWER)
            assert len(found) == 2
            assert all(row in stored for row in found), case.name


def test_comparisons_are_drawn(tmp_path: Path) -> None:
    """Five figures, four where no exact costs are known; the name of a trace is no mathematics."""
    traced = [t._replace(spec=replace(t.spec, workload="azure:we$ek_$1.csv")) for t in runs()]
    unknown = [t._replace(expected=np.full(40, np.nan), best=np.full(40, np.nan)) for t in runs()]

    assert len(comparison_figures(traced, tmp_path)) == 5
    assert len(comparison_figures(unknown, tmp_path, "other")) == 4


def test_the_oracle_is_drawn_over_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the agents beside it are: the loads of the seeds differ, and so do the least costs under them."""
    drawn: dict[str, Figure] = {}

    def noted(figure: Figure, folder: Path, name: str, *, form: str) -> Path:
        drawn[name] = figure
        return folder / f"{name}.{form}"

    monkeypatch.setattr(style, "save", noted)
    comparison_figures([t._replace(best=np.full(40, 1.0 + t.spec.seed)) for t in runs()], tmp_path)

    (oracle,) = (one for one in drawn["comparison-cost"].axes[0].lines if one.get_label() == "oracle, exact")
    assert set(oracle.get_ydata()) == {1.5}  # type: ignore[arg-type]


@pytest.mark.slow  # networks are trained
@pytest.mark.long
@pytest.mark.parametrize("kind", [RivalAgents, RegionSize, CpuLatency, GpuLatency, StrictSlo, LeastResources])
def test_experiments_run_and_are_drawn(tmp_path: Path, kind: type[Experiment[Any, Any]]) -> None:
    """The short version: every case has rows beside the published values, and the figure is written."""
    result = quick(kind).run()

    for case in getattr(kind, "cases", ()):
        assert any(row.id.startswith(case.name) for row in result.rows), case.name
    # how many times fewer windows the rivals need is known only where exact costs are, which take their time
    assert kind is RivalAgents or any(row.published is not None for row in result.rows)
    assert kind.plot(result, tmp_path) == [tmp_path / f"{kind.about.name}.png"]
