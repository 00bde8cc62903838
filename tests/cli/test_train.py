"""`tuner train` for a scheduler's knobs in a simulated cluster, and the options that it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.cli import main

CLUSTER = """
policy: symphony
accelerators: 2
sessions:
  - {name: a, alpha_ms: 2, beta_ms: 10, slo_ms: 60, rate: 150}
"""


@pytest.fixture
def tuner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[str, int]]:
    """Run the command line in an empty folder and return what it printed and how it ended."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[str, int]:
        monkeypatch.setattr(sys, "argv", ["tuner", *arguments])
        with pytest.raises(SystemExit) as ending:
            main()
        said = capsys.readouterr()
        return said.out + said.err, int(ending.value.code or 0)

    return call


def test_a_policy_is_trained_for_a_cluster(tuner: Callable[..., tuple[str, int]], tmp_path: Path) -> None:
    """RRL learns the scheduler's knobs for the file's load."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    printed, code = tuner(
        "train", "--env", "tuner/Cluster-v0", "--scenario", "cluster.yaml", "--windows", "5",
        "--window", "0.5s", "--out", "policy",
    )  # fmt: skip

    assert code == 0, printed
    assert "150 requests/s" in printed
    assert "deferral" in printed
    assert any((tmp_path / "policy").iterdir())


@pytest.mark.parametrize(
    ("option", "value", "env"),
    [
        ("--slo", "p95=30ms", "tuner/Cluster-v0"),
        ("--knob", "deferral=0,1", "tuner/Cluster-v0"),
        ("--scenario", "cluster.yaml", "tuner/TritonCPU-v0"),
        ("--objective", "cpu", "tuner/Cluster-v0"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tuner: Callable[..., tuple[str, int]], option: str, value: str, env: str
) -> None:
    """By name."""
    printed, code = tuner("train", "--env", env, option, value, "--out", "policy", "--windows", "1")

    assert code == 2
    assert option.removeprefix("--") in printed
