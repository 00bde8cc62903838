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


def differences(before: Path, after: Path) -> dict[str, list[str]]:
    """Return in which rows and curves results differ, by experiment.

    Args:
        before: A folder of results. What is not the result of an experiment does not count.
        after: Another one, which must have all of the first.

    Raises:
        InvalidInput: There is nothing to compare.
        StorageError: A folder cannot be read, or a result is damaged.
    """
    names = [name for name in declared() if has_result(before, name)]
    if not names:
        raise InvalidInput(
            "BEFORE", f"no results in {before}", "run `tuner experiment run NAME --json` there"
        )
    return {name: list(_differences(name, before, after)) for name in names}


def _differences(name: str, before: Path, after: Path) -> Iterator[str]:
    if not has_result(after, name):
        yield f"not in {after}"
        return
    old, new = (Result.load(folder / f"{name}.json") for folder in (before, after))
    about = declared()[name].about
    patterns = ("*",) if about.live else about.by_clock
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
