"""Every measured quantity is kept, shown, exported, reported and documented."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tuner.control.store.history import StoredDecision, StoredWindow
from tuner.control.store.schema import SCHEMA
from tuner.laboratory.agent_run import FIGURES
from tuner.measurement import QUANTITIES, Quantity
from tuner.report import Served, WindowReport

PAGE = Path(__file__).parents[2] / "docs" / "attach.md"
HEAD = """\
| `tuner observe --json` | store, history, API | Prometheus | unit | |
|---|---|---|---|---|
"""


def row(quantity: Quantity) -> str:
    """A line of the table in docs/attach.md."""
    name = f"latencies.{quantity.statistic}" if quantity.statistic else quantity.name
    metric = quantity.metric + ("_total" if quantity.counted else "")
    label = f'{{statistic="{quantity.statistic}"}}' if quantity.statistic else ""
    cells = [
        f"`{quantity.field}`",
        f"`{name}`",
        f"`servetune_{metric}{label}`",
        quantity.unit,
        quantity.meaning,
    ]
    return f"| {' | '.join(cells)} |\n"


def test_the_documentation_lists_them() -> None:
    """Put this table in the place of the one that is there."""
    table = HEAD + "".join(map(row, QUANTITIES))

    assert table in PAGE.read_text(), table


def test_the_store_has_a_column_for_each() -> None:
    """And no other column of its tables is called so: the history joins them."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        columns = [
            name
            for table in ("window", "decision")
            for _, name, *_ in db.execute(f"PRAGMA table_info({table})")
        ]

    assert [columns.count(quantity.name) for quantity in QUANTITIES] == [1] * len(QUANTITIES)


def test_reports_and_the_laboratory_have_each() -> None:
    """What is counted has no median over windows."""
    assert {quantity.name for quantity in QUANTITIES} <= {*FIGURES}
    assert {quantity.report for quantity in QUANTITIES} <= {*WindowReport.model_fields}
    averaged = {quantity.report for quantity in QUANTITIES if not quantity.counted}
    assert averaged <= {*Served.model_fields}


def test_answers_and_metrics_have_each() -> None:
    """Under the names of the table."""
    pytest.importorskip("fastapi", reason="needs fastapi and uvicorn")
    from tuner.control.web import Exporter

    names = {"latencies" if quantity.statistic else quantity.name for quantity in QUANTITIES}
    metrics = {metric.name: metric.type for metric in Exporter().registry.collect()}

    assert names <= {*StoredWindow.model_fields}
    assert names <= {*StoredDecision.model_fields}
    for quantity in QUANTITIES:
        assert metrics[f"servetune_{quantity.metric}"] == ("counter" if quantity.counted else "gauge")
