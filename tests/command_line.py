"""The command line, run in this process: one of its own would take seconds to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tuner.__main__ import main


class Ended(NamedTuple):
    """How a command ended: its exit code, what it printed, and its messages on the error stream."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """All that it wrote."""
        return self.out + self.err


Run = Callable[..., Ended]
Say = Callable[..., str]


@pytest.fixture
def figures() -> None:
    """Have reports with figures, which take longer to draw than all else that a short run does."""


@pytest.fixture
def run(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Run:
    """Run the command line in this process, in an empty folder; reports have no figures without `figures`."""
    monkeypatch.chdir(tmp_path)
    if "figures" not in request.fixturenames:
        monkeypatch.setattr("tuner.report.html.find_spec", lambda _: None)

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["tuner", *arguments])
        with pytest.raises(SystemExit) as ending:
            main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        code = ending.value.code or 0
        assert isinstance(code, int)
        return Ended(code, said.out, said.err)

    return call


@pytest.fixture
def tuner(run: Run) -> Say:
    """Run a command line that succeeds; return what it printed."""

    def call(*arguments: str) -> str:
        ended = run(*arguments)
        assert ended.code == 0, ended.err
        return ended.out

    return call


@pytest.fixture
def fails(run: Run) -> Say:
    """Run a command line that is refused with exit code 2; return the message."""

    def call(*arguments: str) -> str:
        ended = run(*arguments)
        assert ended.code == 2, ended
        return ended.err

    return call


@pytest.fixture
def one_core() -> Iterator[None]:
    """Keep this process to one core: then no others are started, which takes them seconds."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)
