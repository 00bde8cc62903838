"""Fixtures of tests that damage what comes from outside."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """What is logged of damage would cost more time than what is tested."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder in memory, where there is one: each round writes files."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)
