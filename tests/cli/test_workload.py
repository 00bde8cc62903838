"""``tuner workload``: what it lists, shows, draws and refuses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import Run
from tuner.workload import WORKLOADS, workload


@pytest.fixture
def run(run: Run) -> Run:
    """Run `tuner workload`."""
    return partial(run, "workload")


def test_every_workload_is_listed_with_its_parameters(run: Run) -> None:
    """With a few words about each."""
    code, out, err = run("list")

    assert (code, err) == (0, "")
    for name, kind in WORKLOADS.items():
        assert f"{name}" in out
        assert all(field.metadata["about"] in out for field in kind.parameters())


def test_rates_are_shown_and_stored(run: Run) -> None:
    """The same as an environment would draw with that seed."""
    code, out, err = run(
        "show",
        "wikipedia",
        "step:at=0.3",
        "--rate",
        "14",
        "--windows",
        "50",
        "--seed",
        "3",
        "--json",
        "w.json",
    )

    stored = json.loads(Path("w.json").read_text())
    expected = workload("wikipedia", 14.0).rates(50, np.random.default_rng(3))
    assert (code, err) == (0, "")
    assert "9.8 to 16.8, mean 14.7 requests/s over 50 windows" in out
    assert stored["seed"] == 3
    assert [row["workload"] for row in stored["workloads"]] == ["wikipedia", "step:at=0.3"]
    assert stored["workloads"][0]["rates"] == expected.tolist()


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_drawn(run: Run, ending: str) -> None:
    """With a panel for each."""
    code, _, err = run("show", "dynamic", "ramp", "burst", "constant", "--plot", f"load.{ending}")

    assert (code, err) == (0, "")
    assert Path(f"load.{ending}").stat().st_size > 5000


def test_the_name_of_a_trace_is_drawn_as_it_is(run: Run) -> None:
    """Two dollar signs in it are no mathematics."""
    rows = "".join(f"2023-11-16 18:17:0{second}.0,10,10\n" for second in range(5))
    Path("we$ek_$1.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")

    code, _, err = run("show", "azure:we$ek_$1.csv", "--windows", "3", "--plot", "load.svg")

    assert (code, err) == (0, "")
    assert "azure:we$ek_$1.csv" in Path("load.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["nothing"], "there is no 'nothing'; use one of constant, dynamic, wikipedia, trace"),
        (["step:hgih=2"], "did you mean high?"),
        (["constant", "--rate", "0"], "rate"),
        (["constant", "--plot", "load.gif"], "let its name end in .png, .svg, .pdf"),
        (["azure:none.csv"], "No such file"),
        (["azure:bad.csv"], "line 2: has 1 fields, not 3"),
    ],
)
def test_mistakes_are_told(run: Run, arguments: list[str], names: str) -> None:
    """Exit code 2 and one line."""
    Path("bad.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nx\n")

    code, out, err = run("show", *arguments)

    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert names in err
    assert err.count("\n") == 1
