"""Without any extra the package observes, recommends, runs and reports; what needs an extra names it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.command_line import Run, run
from tuner.plugin import EXTRAS

__all__ = ["run"]

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
FAST = 1.5
"""Longest start of `tuner observe`, s of a core: 1 s, and half as much again where others slow it down."""


@pytest.fixture
def slim(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package of an extra can be imported."""
    for name in EXTRAS:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("slim")
@pytest.mark.parametrize(
    "command",
    [
        "observe sim://mlp --count 1",
        "recommend sim://mlp?rate=150 --slo p95=30ms --windows 1",
        "run sim://mlp --slo p95=30ms --rate 150 --windows 2 --window 1s --out found",
    ],
)
@pytest.mark.compiled
def test_without_extras(run: Run, command: str) -> None:
    """The report says why it has no figures."""
    ended = run(*command.split())

    assert ended.code == 0, ended.err
    assert not Path("found").exists() or "servetune[lab]" in Path("found/report.html").read_text()


@pytest.mark.usefixtures("slim")
def test_what_needs_an_extra_names_it(run: Run) -> None:
    """In one sentence."""
    ended = run("train", "--agent", "capes", "--rate", "100", "--windows", "2", "--out", "policy")

    assert ended.code == 2
    assert "error: this needs torch, which is not installed; pip install 'servetune[learn]'" in ended.err


def test_extras_hold_what_the_base_does_not() -> None:
    """Each package is in the extra that its sentence names, and not among the dependencies."""
    extras = PROJECT["optional-dependencies"]

    for package, extra in EXTRAS.items():
        assert any(line.startswith(package) for line in extras[extra]), package
        assert not any(line.startswith(package) for line in PROJECT["dependencies"]), package


def test_an_installation_without_extras_is_no_larger_than_the_page_says() -> None:
    """The files of every package that the base needs; docs/compatibility.md names the largest ones."""
    wanted, found = [Requirement(line) for line in PROJECT["dependencies"]], dict[str, int]()
    while wanted:
        package = wanted.pop()
        if package.name.lower() in found:
            continue
        there = distribution(package.name)
        places = [Path(str(file.locate())) for file in there.files or ()]
        found[package.name.lower()] = sum(
            p.stat().st_size for p in places if p.suffix != ".pyc" and p.is_file()
        )
        extras = package.extras or {""}
        needs = map(Requirement, there.requires or ())
        wanted += [
            n for n in needs if n.marker is None or any(n.marker.evaluate({"extra": e}) for e in extras)
        ]

    page = (Path(__file__).parents[1] / "docs" / "compatibility.md").read_text()
    said = re.search(r"takes (\d+) MB", page)
    assert said is not None
    assert sum(found.values()) / 1e6 <= 1.03 * int(said[1]), sorted(found.items(), key=lambda item: -item[1])


@pytest.mark.alone
def test_observe_starts_at_once() -> None:
    """Up to the first question to a server, here one that refuses the connection; the best of five starts.

    Processor time counts: what other processes of the machine take is not ours.
    """
    took = []
    for _ in range(5):
        before = os.times()
        command = [sys.executable, "-m", "tuner", "observe", "triton://127.0.0.1:1/x"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        after = os.times()
        took.append(
            after.children_user - before.children_user + after.children_system - before.children_system
        )
        assert "Connection refused" in ended.stderr

    assert min(took) < FAST, took
