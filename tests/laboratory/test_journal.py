"""The journal: what was written is read, and a torn one is distinguished from a damaged one."""

from __future__ import annotations

import math
import resource
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.agents.agent import State
from tuner.agents.training import EpisodeBegin, TrainingWindow
from tuner.errors import InvalidInput, StorageError
from tuner.laboratory import journal as module
from tuner.laboratory.agent_run import FIGURES, SHOWN, RunSpec
from tuner.laboratory.journal import JOURNAL, TrainingJournal

SPEC = RunSpec(env="tuner/TritonCPU-v0", arguments={"slo": "p95=30ms"}, rates=(100.0, 200.0), windows=3)
KNOBS: list[dict[str, object]] = [{"name": "instances", "grid": [1.0, 2.0]}]


def events() -> list[EpisodeBegin | TrainingWindow]:
    """Two stages of three windows, one of them not measured, the first stage of two episodes."""
    generator = np.random.default_rng(5)

    def observed() -> np.ndarray:
        return generator.random(3).astype(np.float32)

    found: list[EpisodeBegin | TrainingWindow] = []
    for number in range(6):
        if number in {0, 2, 3}:
            seen = dict.fromkeys(SHOWN, math.nan) | {"rate": 7.5}
            state = State(level=20, configuration=0, seen=seen, observation=observed())
            found.append(EpisodeBegin(state=state))
        cost = math.nan if number == 4 else float(generator.random())
        figures = {name: float(generator.random()) for name in FIGURES} | {"gpu": math.nan}
        seen = {name: figures[name] for name in SHOWN} | {"rate": 99.5}
        found.append(
            TrainingWindow(
                window=number % 3, level=20 + number, configuration=number, cost=cost, learned=number != 4,
                ended=number in {1, 2}, rate=99.5, seen=None if number == 4 else seen, observation=observed(),
                figures=figures,
            )
        )  # fmt: skip
    return found


def write(folder: Path) -> Path:
    """Write the journal of all events."""
    journal = TrainingJournal(folder, SPEC, KNOBS)
    for event in events():
        journal.append(event)
    journal.close()
    return folder / JOURNAL


def same(a: list[EpisodeBegin | TrainingWindow], b: list[EpisodeBegin | TrainingWindow]) -> bool:
    """Whether events are equal to the last bit, NaN included."""
    return repr(a) == repr(b) and all(
        np.array_equal(observation(x), observation(y)) for x, y in zip(a, b, strict=True)
    )


def observation(event: EpisodeBegin | TrainingWindow) -> np.ndarray:
    """What an event showed of the environment."""
    assert event.state.observation is not None
    return event.state.observation


def past(folder: Path) -> list[EpisodeBegin | TrainingWindow]:
    """What the journal in a folder holds, for whoever goes on with the training."""
    with closing(TrainingJournal(folder, SPEC, KNOBS)) as journal:
        return list(journal.past)


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    """Costs and observations to the last bit, also what was not measured."""
    write(tmp_path)

    assert same(past(tmp_path), events())


def test_what_an_older_journal_did_not_note_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quantity that was not measured yet; all else is as it was written."""
    write(tmp_path)
    monkeypatch.setattr(module, "FIGURES", (*FIGURES, "new"))
    monkeypatch.setattr(module, "SHOWN", (*SHOWN, "new"))

    found = past(tmp_path)

    for event in found:
        assert event.state.seen is None or math.isnan(event.state.seen["new"])
    windows = [event for event in found if isinstance(event, TrainingWindow)]
    assert all(math.isnan(window.figures["new"]) for window in windows)
    assert [window.figures["p95"] for window in windows] == [
        event.figures["p95"] for event in events() if isinstance(event, TrainingWindow)
    ]


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    """Wherever a crash stops the writing, what came before is there, and the rest can be written again."""
    path = write(tmp_path)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]

    for cut in [*range(ends[-2], len(whole), 7), *range(0, len(whole), 211)]:
        path.write_bytes(whole[:cut])
        journal = TrainingJournal(tmp_path, SPEC, KNOBS)
        lines = sum(end <= cut for end in ends)
        assert same(journal.past, events()[: max(lines - 1, 0)]), cut
        for event in events()[len(journal.past) :]:
            journal.append(event)
        journal.close()
        assert path.read_bytes() == whole


def test_damage_within_is_named_by_its_line(tmp_path: Path) -> None:
    """A changed digit is noticed; only the last line may be bad, for it may be torn."""
    path = write(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[3] = lines[3].replace(b'"cost": 0.', b'"cost": 1.')
    path.write_bytes(b"\n".join(lines))

    with pytest.raises(StorageError, match=r"journal\.jsonl, line 4"):
        past(tmp_path)


@pytest.mark.parametrize("remove", [1, 2, 5])
def test_missing_lines_are_noticed(tmp_path: Path, remove: int) -> None:
    """Windows are numbered, and an episode begins before its windows."""
    path = write(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:remove] + lines[remove + 1 :]))

    with pytest.raises(StorageError, match="line"):
        past(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 4}, "seed is 4 but was 0"),
        ({"arguments": {"slo": "p95=20ms"}}, "slo is p95=20ms but was p95=30ms"),
        ({"arguments": {}}, "slo is not given but was p95=30ms"),
        (
            {"arguments": {"slo": "p95=20ms", "server": {"name": "x", "cores": 9.0}}, "windows": 4},
            "slo is p95=20ms but was p95=30ms; windows is 4 but was 3; another server model; use its",
        ),
        (
            {"arguments": {"slo": "p95=30ms", "grids": {"instances": [1.0]}}},
            ": other grids of knobs; use its",
        ),
        ({"agent": "capes", "parameters": {"budget": 3}}, "budget is 3 but was not given"),
        ({"windows": 4}, "windows is 4 but was 3"),
    ],
)
def test_another_training_is_told_apart(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    """What differs is named; nothing is overwritten."""
    path = write(tmp_path)
    before = path.read_bytes()

    with pytest.raises(InvalidInput, match=named):
        TrainingJournal(tmp_path, replace(SPEC, **change), KNOBS)

    assert path.read_bytes() == before


def test_two_trainings_do_not_write_the_same_journal(tmp_path: Path) -> None:
    """The second is refused while the first is under way."""
    first = TrainingJournal(tmp_path, SPEC, KNOBS)

    with pytest.raises(StorageError, match="another training"):
        TrainingJournal(tmp_path, SPEC, KNOBS)

    first.close()
    TrainingJournal(tmp_path, SPEC, KNOBS).close()


def test_a_disk_without_room_is_named_by_the_file(tmp_path: Path) -> None:
    """To close the file fails, too, and that would be all that anybody hears of it."""
    journal = TrainingJournal(tmp_path, SPEC, KNOBS)
    room, before = journal.path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(StorageError, match=JOURNAL), closing(journal):
            journal.append(events()[0])
        (tmp_path / "other").mkdir()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        with pytest.raises(StorageError, match=JOURNAL):
            TrainingJournal(tmp_path / "other", SPEC, KNOBS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with closing(TrainingJournal(tmp_path, SPEC, KNOBS)) as again:
        assert again.past == []


def test_other_files_are_not_taken_for_journals(tmp_path: Path) -> None:
    """They are left as they are."""
    (tmp_path / JOURNAL).write_text("hello\nworld\n")
    with pytest.raises(StorageError, match="line 1"):
        TrainingJournal(tmp_path, SPEC, KNOBS)
    (tmp_path / JOURNAL).write_bytes(b"\xff\xfe\n")
    with pytest.raises(StorageError, match="not text"):
        TrainingJournal(tmp_path, SPEC, KNOBS)
