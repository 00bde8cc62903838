"""The timeline of a query: draws when each stage begins, its budget, and how much of that it executes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.report import style

if TYPE_CHECKING:
    from tuner.planning.queries import Query, QueryPlan

__all__ = ["write_timeline"]


def write_timeline(plan: QueryPlan, query: Query, path: Path) -> None:
    """Write the stages of a query as bars along the time since its arrival."""
    title = f"{plan.accelerators:.3g} accelerators for {query.rate:g} queries/s within {query.slo_ms:g} ms"
    figure, axes = style.figure(title, size=(7, 1.2 + 0.4 * len(plan.stages)))
    panel, names = axes[0, 0], [style.plain(stage.name) for stage in plan.stages]
    color, _ = style.look("symphony")
    rows = range(len(names))
    begin = [stage.begin * 1e3 for stage in plan.stages]
    budget = [stage.budget * 1e3 for stage in plan.stages]
    executing = [stage.latency * 1e3 for stage in plan.stages]
    late = [first + whole - busy for first, whole, busy in zip(begin, budget, executing, strict=True)]
    panel.barh(rows, budget, 0.7, left=begin, color=color, alpha=0.25, label="budget")
    panel.barh(rows, executing, 0.7, left=late, color=color, label="execution, at the latest")
    for row, stage in enumerate(plan.stages):
        text = f"batch {stage.batch} · {stage.accelerators:.2g} accelerators"
        panel.text(query.slo_ms * 1.02, row, text, va="center", fontsize=8, color=style.INK)
    panel.axvline(query.slo_ms, color=style.INK, ls="--", lw=1, label="SLO")
    panel.set_yticks(rows, names)
    panel.invert_yaxis()
    panel.set(xlabel="ms since the query's arrival", xlim=(0, query.slo_ms * 1.45))
    style.legend(panel, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    style.write(figure, path)
