"""The page of words points to where each is defined."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "words.md").read_text()
ROWS = [
    row.split(" | ") for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| word")
]


def test_every_word_is_defined_where_the_page_says() -> None:
    """Files move; the page follows."""
    missing = [path for row in ROWS for path in re.findall(r"`([\w/]+(?:\.py|/))`", row[2])]

    assert [path for path in missing if not (ROOT / path).exists()] == []


def test_every_word_stands_there_once() -> None:
    """One meaning each."""
    words = [word.strip("| ") for row in ROWS for word in row[0].split(", ")]

    assert len(words) > 50
    assert len(set(words)) == len(words)
