"""Results before and after a change: every difference is named, and what a clock measured is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import InvalidInput
from tuner.experiments.frame.compare import differences
from tuner.experiments.frame.result import Result, row
from tuner.report.series import curve


def store(
    folder: Path, name: str, rows: dict[str, float], points: float = 1.0, panel: str = "goodput"
) -> None:
    """Store a result with these rows and a curve."""
    folder.mkdir(exist_ok=True)
    Result(
        experiment=name,
        seeds=1,
        rows=[row(key, [value], note=f"in {folder.name}") for key, value in rows.items()],
        series=[curve("symphony", [1.0], [[points]], panel=panel)],
    ).save(folder / f"{name}.json")


def test_the_same_rows_are_the_same_whatever_their_notes(tmp_path: Path) -> None:
    """Words may change; results that are new are not compared."""
    for folder in ("before", "after"):
        store(tmp_path / folder, "symphony-table2", {"a": 1.0, "b": 2.0})
    store(tmp_path / "after", "symphony-table4", {"a": 1.0})

    assert differences(tmp_path / "before", tmp_path / "after") == {"symphony-table2": []}


def test_differences_are_named(tmp_path: Path) -> None:
    """Other values, rows that are missing or new, and curves."""
    store(tmp_path / "before", "symphony-table2", {"a": 1.0, "b": 2.0})
    store(tmp_path / "before", "symphony-table4", {"a": 1.0})
    store(tmp_path / "after", "symphony-table2", {"a": 1.5, "c": 2.0}, points=3.0)

    found = differences(tmp_path / "before", tmp_path / "after")
    changed = found["symphony-table2"]

    assert changed is not None
    assert [text.split(":")[0] for text in changed] == [
        "row 'a'", "row 'b' is missing", "row 'c' is new", "curve 'symphony' of panel 'goodput'",
    ]  # fmt: skip
    assert "'measured': 1.0" in changed[0]
    assert found["symphony-table4"] == [f"not in {tmp_path / 'after'}"]


def test_another_order_is_a_difference(tmp_path: Path) -> None:
    """Pages show the rows in it."""
    store(tmp_path / "before", "symphony-table2", {"a": 1.0, "b": 2.0})
    store(tmp_path / "after", "symphony-table2", {"b": 2.0, "a": 1.0})

    assert differences(tmp_path / "before", tmp_path / "after") == {
        "symphony-table2": ["the order has changed"]
    }


def test_what_a_clock_measured_is_left_out(tmp_path: Path) -> None:
    """The experiment says which rows and panels those are; what measures live servers is not compared."""
    for folder, speed in (("before", 1.0), ("after", 2.0)):
        store(tmp_path / folder, "symphony-fig11", {"alone, threads: 1": speed, "goodput, 16": 1.0})
        store(tmp_path / folder, "triton-cpu", {"CPU saved": speed}, points=speed, panel="")

    found = differences(tmp_path / "before", tmp_path / "after")

    assert found == {"symphony-fig11": [], "triton-cpu": None}
    store(tmp_path / "after", "symphony-fig11", {"alone, threads: 1": 2.0, "goodput, 16": 1.5})
    changed = differences(tmp_path / "before", tmp_path / "after")["symphony-fig11"]
    assert changed is not None
    assert len(changed) == 1


def test_there_must_be_something_to_compare(tmp_path: Path) -> None:
    """A folder by mistake is no success."""
    with pytest.raises(InvalidInput, match="BEFORE"):
        differences(tmp_path, tmp_path)


def test_live_servers_alone_cannot_be_compared(tmp_path: Path) -> None:
    """Nothing compared is not the same; a result that is missing is a difference all the same."""
    for folder in ("before", "after"):
        store(tmp_path / folder, "triton-cpu", {"CPU saved": 1.0})

    with pytest.raises(InvalidInput, match=r"BEFORE: all results in .* are of live servers"):
        differences(tmp_path / "before", tmp_path / "after")
    (tmp_path / "after" / "triton-cpu.json").unlink()
    assert differences(tmp_path / "before", tmp_path / "after") == {
        "triton-cpu": [f"not in {tmp_path / 'after'}"]
    }
