"""`tuner train` for a scheduler's knobs in a simulated cluster, and the options that it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.command_line import Run
from tuner import plugin
from tuner.agents.idle import Idle
from tuner.agents.policy_file import MANIFEST
from tuner.agents.rivals.random_search import RandomSearch
from tuner.knobs import KnobSpace

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


@pytest.mark.parametrize("keeps", ["nothing", "no policy", "not implemented", "nothing yet"])
def test_an_agent_that_keeps_nothing_is_refused_before_it_is_trained(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: str
) -> None:
    """It was trained, nothing was stored, and the exit code was 0."""

    left = []  # without close

    class Forgetful(Idle):
        def __init__(self, space: KnobSpace) -> None:
            super().__init__(space)
            left.append(self)

        def close(self) -> None:
            left.remove(self)

        def update(self, *_: object) -> None:
            raise AssertionError("it was trained")

        def save(self, folder: Path) -> None:
            if keeps == "not implemented":
                raise NotImplementedError
            if keeps == "nothing yet":
                raise ValueError("learned nothing yet")
            if keeps == "no policy":
                (folder / "notes.txt").write_text("of no use")

    entry = SimpleNamespace(name="mine", value="mine:make", load=lambda: lambda space, **_: Forgetful(space))
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry] if group == plugin.AGENTS else [])

    ended = run("train", "--agent", "mine", "--windows", "3", "--window", "0.5s", "--out", "policy")

    assert ended.code == 2
    fails = "fails (ValueError: learned nothing yet)" if keeps == "nothing yet" else "writes no policy"
    assert f"error: agent mine: its `save` {fails}, so that nothing that it learns would be kept" in ended.err
    assert not left
    assert "write_policy" in ended.err
    assert not any((tmp_path / "policy").iterdir())


@pytest.mark.parametrize("older", [False, True])
def test_an_agent_that_cannot_save_what_it_has_learned_has_no_summary(
    run: Run, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """What is known only afterwards is said afterwards: no policy lies there, or only an older one."""
    left = []  # without close

    class Forgetful(RandomSearch):
        name = "mine"

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            left.append(self)

        def save(self, folder: Path) -> None:
            if not self.records:
                super().save(folder)

        def close(self) -> None:
            left.remove(self)

    entry = SimpleNamespace(name="mine", value="mine:make", load=lambda: Forgetful)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry] if group == plugin.AGENTS else [])

    if older:
        Path("policy").mkdir()
        Path("policy", MANIFEST).write_text("{}")

    ended = run("train", "--agent", "mine", "--windows", "3", "--window", "0.5s", "--out", "policy")

    assert ended.code == 2
    assert "error: agent mine: its `save` writes no policy" in ended.err
    assert not left
