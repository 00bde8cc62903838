"""`tuner train` for a scheduler's knobs in a simulated cluster, and the options that it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import Run

CLUSTER = """
policy: symphony
accelerators: 2
sessions:
  - {name: a, alpha_ms: 2, beta_ms: 10, slo_ms: 60, rate: 150}
"""


def test_a_policy_is_trained_for_a_cluster(run: Run, tmp_path: Path) -> None:
    """RRL learns the scheduler's knobs for the file's load."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    ended = run(
        "train", "--env", "tuner/Cluster-v0", "--scenario", "cluster.yaml", "--windows", "5",
        "--window", "0.5s", "--out", "policy",
    )  # fmt: skip

    assert ended.code == 0, ended.said
    assert "150 requests/s" in ended.said
    assert "deferral" in ended.said
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
def test_options_that_mean_nothing_are_refused(run: Run, option: str, value: str, env: str) -> None:
    """By name."""
    ended = run("train", "--env", env, option, value, "--out", "policy", "--windows", "1")

    assert ended.code == 2
    assert option.removeprefix("--") in ended.said
