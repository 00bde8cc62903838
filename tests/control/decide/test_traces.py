"""Decisions are what they were when the traces were recorded; see `tests.control.decide.trace`."""

from __future__ import annotations

import pytest

from tests.control.decide.random_life import random_life
from tests.control.decide.trace import (
    HISTORIES,
    LIVES,
    TOGETHER,
    TRACES,
    WINDOWS,
    daemon_life,
    digest,
    histories,
    read,
)


@pytest.mark.compiled
@pytest.mark.parametrize("name", sorted(path.stem for path in TRACES.glob("daemon-*.json")))
def test_the_daemon_decides_as_recorded(name: str) -> None:
    """In the lives of the experiments daemon-spike and daemon-hindsight."""
    trace = read(name)

    assert daemon_life(trace["target"], trace["windows"]) == trace["decisions"]


def test_random_lives_are_decided_as_recorded() -> None:
    """Whatever servers, metrics, operators and other people do."""
    recorded = read("random")
    lives = [random_life(seed, WINDOWS) for seed in range(LIVES)]

    for seed, life in enumerate(recorded["lives"]):
        assert lives[seed] == life, f"seed {seed}"
    assert [digest(life) for life in lives] == recorded["digests"]


@pytest.mark.long
@pytest.mark.slow
def test_ten_thousand_histories_are_decided_as_recorded() -> None:
    """Short ones, so that nearly all of them begin in another way."""
    assert [histories(number) for number in range(HISTORIES // TOGETHER)] == read("random")["histories"]
