"""The journal of a training: every event a line of JSON, from which an interrupted training goes on.

The first line says what is trained. Each other line says that an episode began, or what a window showed.
Every line holds a checksum of itself. Lines are added and never changed. If a crash has torn the last line,
it is cut off; damage anywhere else is an error that names the line.
"""

from __future__ import annotations

import fcntl
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from pydantic import TypeAdapter, ValidationError

from tuner.agents.agent import State
from tuner.agents.training import EpisodeBegin, Event, TrainingWindow
from tuner.errors import InvalidInput, StorageError
from tuner.laboratory.agent_run import FIGURES, SHOWN, RunSpec
from tuner.measurement import known

__all__ = ["JOURNAL", "TrainingJournal"]

JOURNAL = "journal.jsonl"
FORMAT = "servetune-journal 2"
CHECK = "check"
_SPEC = TypeAdapter(RunSpec)


class TrainingJournal:
    """A journal that is open for writing: opening reads the events in it, :meth:`append` adds one.

    Args:
        folder: Where it lies; it must exist.
        spec: What is trained.
        knobs: The knobs of the environment, as :meth:`KnobSpace.to_json` returns them.

    Raises:
        InvalidInput: A training with other arguments lies there (names what differs).
        StorageError: It cannot be read or written, is damaged, or another process is writing it.
    """

    def __init__(self, folder: Path, spec: RunSpec, knobs: Sequence[dict[str, object]]) -> None:
        self.path = folder / JOURNAL
        self._file = _open(self.path)
        try:
            lines, length = _lines(self.path, self._file)
            if lines:
                there, self.past = _parse(self.path, lines)
                _check_same(self.path, there, spec)
            else:
                self.past = []
            self._file.truncate(length)  # a torn line
            self._file.seek(length)
            if not lines:
                self._write({"format": FORMAT, "spec": _SPEC.dump_python(spec, mode="json"), "knobs": knobs})
        except BaseException:
            self.close()
            raise

    def append(self, event: Event) -> None:
        """Add what happened.

        Raises:
            StorageError: The disk is full, or the file has gone.
        """
        if isinstance(event, EpisodeBegin):
            self._write({"begin": _state(event.state)})
            return
        self._write(
            {
                "window": event.window,
                **_state(event.state),
                "cost": known(event.cost),
                "learned": event.learned,
                "ended": event.ended,
                "figures": {name: known(value) for name, value in event.figures.items()},
            }
        )

    def close(self) -> None:
        """Close the file. May be called twice."""
        with suppress(OSError):  # of what could not be written `append` has said so
            self._file.close()

    def _write(self, values: dict[str, Any]) -> None:
        text = json.dumps(values, allow_nan=False)
        try:
            self._file.write(f'{text[:-1]}, "{CHECK}": {zlib.crc32(text.encode())}}}\n')
            self._file.flush()  # a killed process loses nothing
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from error


def _open(path: Path) -> TextIO:
    try:
        file = path.open("a+", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise StorageError(f"{path}: another training writes there; wait, or give another folder") from None
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}; give another folder") from error
    return file


def _lines(path: Path, file: TextIO) -> tuple[list[dict[str, Any]], int]:
    """Read and check the lines.

    Returns:
        What they hold, and the length of the file up to which they are sound, bytes.
    """
    file.seek(0)
    try:
        text = file.read()
    except UnicodeDecodeError:
        raise StorageError(f"journal {path}: it is not text; give another folder") from None
    found: list[dict[str, Any]] = []
    pieces = text.split("\n")
    length = 0
    for number, piece in enumerate(pieces[:-1], 1):
        values = _checked(piece)
        if values is None:
            if number == len(pieces) - 1:  # the last line is torn
                break
            raise _damaged(path, number)
        found.append(values)
        length += len(piece.encode()) + 1
    return found, length


def _checked(line: str) -> dict[str, Any] | None:
    """Return what a line holds; None if it is not what was written."""
    text, comma, rest = line.rpartition(f', "{CHECK}": ')
    if not comma or rest != f"{zlib.crc32(f'{text}}}'.encode())}}}":
        return None
    values = json.loads(f"{text}}}")
    assert isinstance(values, dict), values
    return values


def _parse(path: Path, lines: list[dict[str, Any]]) -> tuple[RunSpec, list[Event]]:
    head = lines[0]
    if head.get("format") != FORMAT:
        raise StorageError(f"journal {path}: not a journal of this version; give another folder")
    events: list[Event] = []
    windows = 0
    try:
        spec = _SPEC.validate_python(head["spec"])
        for number, values in enumerate(lines[1:], 2):
            events.append(_event(values))
            if isinstance(events[-1], TrainingWindow):
                if events[-1].window != windows % spec.windows:
                    raise _damaged(path, number)
                windows += 1
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise _damaged(path, len(events) + 2) from error
    if (events and not isinstance(events[0], EpisodeBegin)) or windows > spec.windows * len(spec.stages):
        raise _damaged(path, 2)
    return spec, events


def _event(values: dict[str, Any]) -> Event:
    if "begin" in values:
        begin = values["begin"]
        return EpisodeBegin(
            state=State(
                level=int(begin["level"]),
                configuration=int(begin["configuration"]),
                rate=begin["rate"],
                seen=_seen(begin.get("seen")),
                observation=_array(begin["observation"]),
            )
        )
    figures = {**dict.fromkeys(FIGURES), **values["figures"]}  # an older journal has fewer
    seen = {name: _number(figures[name]) for name in SHOWN} | {"rate": _number(values["rate"])}
    return TrainingWindow(
        window=int(values["window"]),
        level=int(values["level"]),
        configuration=int(values["configuration"]),
        cost=_number(values["cost"]),
        learned=bool(values["learned"]),
        ended=bool(values["ended"]),
        rate=values["rate"],
        seen=seen if values["learned"] else None,
        observation=_array(values["observation"]),
        figures={name: _number(figures[name]) for name in FIGURES},
    )


def _state(state: State) -> dict[str, Any]:
    observation = None if state.observation is None else [float(value) for value in state.observation]
    return {
        "level": int(state.level),
        "configuration": int(state.configuration),
        "rate": state.rate,
        "seen": None if state.seen is None else {name: known(value) for name, value in state.seen.items()},
        "observation": observation,
    }


def _seen(values: Mapping[str, float | None] | None) -> Mapping[str, float] | None:
    if values is None:
        return None
    return {name: _number(value) for name, value in {**dict.fromkeys(SHOWN), **values}.items()}


def _array(values: list[float] | None) -> np.ndarray | None:
    return None if values is None else np.array(values, dtype=np.float32)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _damaged(path: Path, number: int) -> StorageError:
    return StorageError(f"journal {path}, line {number}: damaged; train again in another folder")


OTHER = {"server": "another server model", "scenario": "another scenario", "grids": "other grids of knobs"}
"""What is said of arguments that are too long to be shown."""


def _check_same(path: Path, there: RunSpec, wanted: RunSpec) -> None:
    """Check that a journal belongs to the training that is wanted."""
    old, new = _flat(there), _flat(wanted)
    differing = [
        OTHER.get(name) or f"{name} is {new.get(name, 'not given')} but was {old.get(name, 'not given')}"
        for name in sorted({*old, *new}, key=lambda name: (name in OTHER, name))
        if old.get(name) != new.get(name)
    ]
    if differing:
        raise InvalidInput(
            "--out",
            f"another training lies in {path.parent}: {'; '.join(differing)}",
            "use its arguments to go on with it, or give another folder",
        )


def _flat(spec: RunSpec) -> dict[str, Any]:
    """The fields of a spec, with those of its arguments and parameters, by name."""
    values = _SPEC.dump_python(spec, mode="json")
    inner: dict[str, Any] = values.pop("arguments") | values.pop("parameters")
    values |= inner
    return dict(values)
