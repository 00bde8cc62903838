"""Training that is interrupted goes on to the same end."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.laboratory.agent_runs import SMALL
from tuner.agents.training import TrainingWindow
from tuner.envs.simulator.batched import BatchedSimulator
from tuner.errors import InvalidInput, StorageError
from tuner.laboratory.agent_run import RunSpec
from tuner.laboratory.journal import JOURNAL
from tuner.laboratory.tensorboard import FILE, TensorBoard
from tuner.laboratory.training import train

SPEC = RunSpec(**SMALL | {"rates": (100.0, 150.0), "windows": 8})


class Interrupted(Exception):
    """Stands for Ctrl-C."""


def interrupt_after(windows: int) -> Callable[..., Any]:
    """Return a progress function that raises after some windows."""
    seen = []

    def progress() -> None:
        seen.append(1)
        if len(seen) > windows:
            raise Interrupted

    return progress


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("agent", ["rrl", "q_learning", "hill_climb"])
def test_an_interrupted_training_ends_as_if_it_had_not_been(tmp_path: Path, agent: str) -> None:
    """Interrupted twice, in both loads: policy and journal are the same to the last bit."""
    spec = replace(SPEC, agent=agent)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    train(spec, whole).agent.close()

    for windows in (4, 10):
        with pytest.raises(Interrupted):
            train(spec, parts, progress=interrupt_after(windows))
    trained = train(spec, parts)

    trained.agent.close()
    assert trained.repeated == 11
    assert len(trained.run.cost) == 16
    assert contents(parts) == contents(whole)


@pytest.mark.parametrize("windows", [1, 5, 10])
def test_windows_that_stand_alone_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    """In a batched simulator only the last is, and the end is the same: load, level, cost of a change."""
    spec = RunSpec(
        env="tuner/TFServingCPU-v0", arguments={"window": 5.0, "change_cost": 1.0}, workload="wikipedia",
        agent="random", windows=12, seed=3, exact=False,
    )  # fmt: skip
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    train(spec, whole).agent.close()
    with pytest.raises(Interrupted):
        train(spec, parts, progress=interrupt_after(windows - 1))
    measured = []
    real = BatchedSimulator.step

    def counted(*arguments: Any) -> Any:
        measured.append(1)
        return real(*arguments)

    monkeypatch.setattr(BatchedSimulator, "step", counted)

    trained = train(spec, parts)

    assert trained.repeated == windows
    assert len(measured) == 1 + 1 + 12 - windows  # of the reset, of the last one, and the new ones
    assert contents(parts) == contents(whole)


def test_a_finished_training_can_be_asked_for_again(tmp_path: Path) -> None:
    """Nothing is measured again, and the policy stays what it was."""
    train(SPEC, tmp_path).agent.close()
    before = contents(tmp_path)

    again = train(SPEC, tmp_path)

    again.agent.close()
    assert again.repeated == 16
    assert contents(tmp_path) == before


def test_other_arguments_are_refused(tmp_path: Path) -> None:
    """What lies there is not mixed with another training."""
    train(SPEC, tmp_path).agent.close()

    with pytest.raises(InvalidInput, match="seed is 1 but was 0"):
        train(SPEC.seeded(1), tmp_path)


@pytest.mark.parametrize(("field", "value"), [("cost", 0.123), ("configuration", 1)])
def test_a_past_that_does_not_repeat_itself_is_refused(tmp_path: Path, field: str, value: float) -> None:
    """As when the program was changed: the journal is sound, but the agent or the server does otherwise."""
    import zlib

    with pytest.raises(Interrupted):
        train(SPEC, tmp_path, progress=interrupt_after(4))
    path = tmp_path / JOURNAL
    lines = path.read_text().splitlines()
    values = json.loads(lines[3])
    values.pop("check")
    text = json.dumps(values | {field: value + values[field] if field == "configuration" else value})
    lines[3] = f'{text[:-1]}, "check": {zlib.crc32(text.encode())}}}'
    path.write_text("\n".join(lines) + "\n")

    with pytest.raises(StorageError, match="does not repeat itself"):
        train(SPEC, tmp_path)


def test_tensorboard_sees_every_window_once(tmp_path: Path) -> None:
    """Also those before an interruption; what was not measured is left out."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logs, policy = tmp_path / "logs", tmp_path / "policy"
    logs.mkdir()
    policy.mkdir()
    with pytest.raises(Interrupted):
        train(SPEC, policy, tensorboard=logs, progress=interrupt_after(5))
    trained = train(SPEC, policy, tensorboard=logs)

    trained.agent.close()
    found = EventAccumulator(str(logs))
    found.Reload()
    costs = found.Scalars("cost/measured")
    assert [event.step for event in costs] == list(range(16))
    assert [event.value for event in costs] == pytest.approx(trained.run.cost.tolist(), rel=1e-6)
    assert {"agent/level", "agent/learned", "slo/kept"} <= set(found.Tags()["scalars"])
    assert "window/gpu" not in found.Tags()["scalars"]


def test_logs_that_find_no_room_are_named_by_their_file(tmp_path: Path) -> None:
    """Without its name it was taken for the output of the command."""
    window = TrainingWindow(window=0, level=20, configuration=0, cost=1.0, learned=True)
    logs = TensorBoard(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(StorageError, match=FILE), closing(logs):
            logs.add(window)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
