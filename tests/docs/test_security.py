"""The page on security names each limit with its number, as it is set in the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
ROW = re.compile(r"^\| [^|]+ \| (?P<limit>[^|]+) \| `(?P<name>[A-Z_]+)` in `(?P<file>[\w/]+)\.py` \|$", re.M)
ROWS = [(row["file"], row["name"], row["limit"]) for row in ROW.finditer(PAGE.read_text())]


@pytest.mark.parametrize(("file", "name", "limit"), ROWS)
def test_a_limit_is_as_the_page_says(file: str, name: str, limit: str) -> None:
    """The number in its row is the constant's."""
    module = import_module(f"tuner.{file.removeprefix('tuner/').replace('/', '.')}")
    number = re.match(r"[\d,.e]+", limit)

    assert number is not None
    assert float(number[0].replace(",", "")) == getattr(module, name)


def test_the_page_has_limits() -> None:
    """The pattern that finds its rows is not out of date."""
    assert len(ROWS) > 10
