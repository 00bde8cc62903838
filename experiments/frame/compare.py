"""Compares stored results row by row: the same experiments before and after a change of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tuner.errors import InvalidInput
from tuner.experiments.frame.discovery import declared
from tuner.experiments.frame.result import Result, Row, has_result
from tuner.report.series import Series

__all__ = ["differences"]

VALUES = ("published", "measured", "low", "high", "unit")
"""What must be the same in a row; its note is words."""


def differences(before: Path, after: Path) -> dict[str, list[str] | None]:
    """Return in which rows and curves results differ, by experiment; None if it measures live servers.

    Those differ from run to run in every row, and some in which rows they have. They are not compared.

    Args:
        before: A folder of results. What is not the result of an experiment does not count.
        after: Another one, which must have all of the first.

    Raises:
        InvalidInput: There is nothing to compare, or nothing that can be compared.
        StorageError: A folder cannot be read, or a result is damaged.
    """
    names = [name for name in declared() if has_result(before, name)]
    if not names:
        raise InvalidInput(
            "BEFORE", f"no results in {before}", "run `tuner experiment run NAME --json` there"
        )
    found = {name: _differences(name, before, after) for name in names}
    if all(some is None for some in found.values()):
        raise InvalidInput("BEFORE", f"all results in {before} are of live servers, which are not compared")
    return found


def _differences(name: str, before: Path, after: Path) -> list[str] | None:
    if not has_result(after, name):
        return [f"not in {after}"]
    old, new = (Result.load(folder / f"{name}.json") for folder in (before, after))
    about = declared()[name].about
    return None if about.live else [*_changes(old, new, about.by_clock)]


def _changes(old: Result, new: Result, patterns: Sequence[str]) -> Iterator[str]:
    """Say what differs, without the rows and panels that patterns name."""
    yield from _compared(_rows(old.rows, patterns), _rows(new.rows, patterns))
    yield from _compared(_curves(old.series, patterns), _curves(new.series, patterns))


def _rows(rows: Sequence[Row], patterns: Sequence[str]) -> dict[str, object]:
    """The values of each row that must be the same, in order."""
    return {
        f"row '{row.id}'": {name: getattr(row, name) for name in VALUES}
        for row in rows
        if not _matches(row.id, patterns)
    }


def _curves(series: Sequence[Series], patterns: Sequence[str]) -> dict[str, object]:
    return {
        f"curve '{one.name}' of panel '{one.panel}'": one.model_dump(exclude={"name", "panel"})
        for one in series
        if not _matches(one.panel, patterns)
    }


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _compared(old: dict[str, object], new: dict[str, object]) -> Iterator[str]:
    for name in old | new:
        if name not in new:
            yield f"{name} is missing"
        elif name not in old:
            yield f"{name} is new"
        elif old[name] != new[name]:
            yield f"{name}: {old[name]} before, {new[name]} after"
    if old.keys() == new.keys() and list(old) != list(new):
        yield "the order has changed"
