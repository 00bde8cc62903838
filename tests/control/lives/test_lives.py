"""Whatever happens to a server, its daemon and its operators, the daemon does what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.control.lives.promises import lived


def broken(seeds: range, folder: Path) -> list[str]:
    """The promises that were broken in the lives of some seeds, each with its seed."""
    return [f"seed {seed}: {sentence}" for seed in seeds for sentence in lived(seed, folder).broken]


def test_promises_are_kept(tmp_path: Path) -> None:
    """In a few lives; ``python -m tests.control.lives FIRST LAST`` lives many, and tells their stories."""
    assert broken(range(3), tmp_path) == []


@pytest.mark.long
def test_promises_are_kept_in_many_lives(tmp_path: Path) -> None:
    """As in a few."""
    assert broken(range(100, 116), tmp_path) == []
