"""What a command writes is no file that it reads or writes otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.command_line import Run, Say
from tuner.cli.paths import WRITTEN
from tuner.command import app

SCENARIO = (
    "policy: eager\naccelerators: 1\nsessions: [{name: s, slo_ms: 40, rate: 3, alpha_ms: 1, beta_ms: 2}]\n"
)
READ = ("--policy", "--sli-token-file", "--server", "--scenario", "--profiles", "--models", "--state")
"""Options for a file or folder that is read."""
OWN = ("--docs", "--results")
"""Folders of the documentation."""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("simulate a.yaml --json a.yaml", "--json: a.yaml is read for FILE.yaml"),
        ("simulate a.yaml --trace ./a.yaml", "--trace: a.yaml is read for FILE.yaml"),
        ("simulate a.yaml --metrics link.yaml", "--metrics: link.yaml is read for FILE.yaml"),
        ("simulate a.yaml --json b.json --trace ./b.json", "--trace: b.json is written for --json"),
        ("goodput a.yaml --json a.yaml", "--json: a.yaml is read for FILE.yaml"),
        ("plan cluster a.yaml --json b.svg --plot b.svg", "--plot: b.svg is written for --json"),
        ("plan instances a.yaml --profiles p --json p", "--json: p is read for --profiles"),
        ("plan prefix a.yaml b.onnx --json b.onnx", "--json: b.onnx is read for MODEL.onnx..."),
        ("dispatch a.yaml --log a.yaml", "--log: a.yaml is read for CONFIG.yaml"),
        ("compare --server a.yaml --json a.yaml", "--json: a.yaml is read for --server"),
        ("compare --workload azure:a.yaml --json a.yaml", "--json: a.yaml is read for --workload"),
        ("compare --server a.yaml --csv a.yaml", "--csv: a.yaml is read for --server"),
        ("compare --workload trace:a.yaml,burstiness=1 --csv a.yaml", "--csv: a.yaml is read for --workload"),
        ("calibrate sim://mlp?server=server.json", "--out: server.json is read for TARGET"),
        ("workload show azure:a.yaml --json a.yaml", "--json: a.yaml is read for SPEC..."),
        ("workload show ramp azure:a.yaml,burstiness=1 --json a.yaml", "--json: a.yaml is read for SPEC..."),
        ("calibrate h:1/m --arrival trace:a.yaml --out a.yaml", "--out: a.yaml is read for --arrival"),
        ("experiment run kairos --json b --plot ./b", "--json: b is written for --plot"),
    ],
)
def test_an_output_overwrites_nothing_of_the_command(
    fails: Say, tmp_path: Path, line: str, said: str
) -> None:
    """Also where the file has two names; nothing is changed."""
    (tmp_path / "a.yaml").write_text(SCENARIO)
    os.symlink("a.yaml", tmp_path / "link.yaml")

    assert fails(*line.split()) == f"error: {said}, too, and would be overwritten; name another file\n"
    assert (tmp_path / "a.yaml").read_text() == SCENARIO
    assert {path.name for path in tmp_path.iterdir()} == {"a.yaml", "link.yaml"}


def test_an_output_overwrites_no_file_of_a_folder_that_is_read(fails: Say, tmp_path: Path) -> None:
    """Such as a policy's; a new file may lie beside it."""
    (tmp_path / "learned").mkdir()
    policy = tmp_path / "learned" / "policy.json"
    policy.write_text("{}")

    said = fails(*["evaluate", "learned", "--env", "tuner/TritonCPU-v0", "--json", "learned/policy.json"])

    assert "--json: learned/policy.json is read for POLICY, too, and would be overwritten" in said
    assert policy.read_text() == "{}"


@pytest.mark.parametrize(
    "line",
    [
        "compare --workload azure:lost.csv --json b.json --plot .",
        "experiment run lost --json b.json --plot .",
        "plan prefix lost.onnx lost2.onnx --json b.json --parts .",
    ],
)
def test_a_folder_that_is_written_may_have_another_output(fails: Say, tmp_path: Path, line: str) -> None:
    """Also once that is there, when the same command is called again."""
    (tmp_path / "b.json").write_text("{}")

    said = fails(*line.split())

    assert "lost" in said
    assert "--json" not in said


@pytest.mark.parametrize("option", ["--json", "--trace", "--metrics"])
def test_an_empty_name_is_refused(fails: Say, option: str) -> None:
    """It would be read as the folder in which the command runs."""
    assert fails("simulate", "a.yaml", option, "") == (
        f"error: {option}: is empty; write the name of a file or folder\n"
    )


def test_outputs_of_their_own_are_written(run: Run, tmp_path: Path) -> None:
    """Also over what another call wrote."""
    (tmp_path / "a.yaml").write_text(SCENARIO)
    for _ in range(2):
        ended = run("simulate", "a.yaml", "--seconds", "1", "--json", "b.json", "--trace", "c.json")

        assert ended.code == 0, ended

    assert (tmp_path / "b.json").stat().st_size
    assert (tmp_path / "c.json").stat().st_size


def options(command: Any) -> Iterator[Any]:
    """Yield the options of a command and of those below it."""
    yield from (one for one in command.params if one.opts[0].startswith("-"))
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


def test_every_option_for_a_path_is_known() -> None:
    """An option for what is written stands in the list, by which it is checked."""
    found = [one for one in options(typer.main.get_command(app)) if "Path" in str(vars(one))]

    assert len(found) > 30
    assert {one.opts[0] for one in found} - {*WRITTEN, *READ, *OWN} == set()
