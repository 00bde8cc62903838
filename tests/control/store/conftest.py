"""A store of its own for each test, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.store.store_bed import Times
from tuner.control.store.store import Store


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def store(tmp_path: Path, times: Times) -> Iterator[Store]:
    store = Store(tmp_path / "s.db", now=times)
    yield store
    store.close()
