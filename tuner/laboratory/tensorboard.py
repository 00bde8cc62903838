"""Logs of a training for TensorBoard, written without TensorFlow."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path

from tuner.agents.training import EpisodeBegin, Event
from tuner.errors import StorageError
from tuner.laboratory.agent_run import FIGURES

__all__ = ["TensorBoard"]

FILE = "events.out.tfevents.0.servetune"
"""TensorBoard reads files of such names. The name is fixed, so that a training that goes on replaces its
file."""
TAGS = {"expected": "cost/exact", "best": "cost/best", "kept": "slo/kept"}


class TensorBoard:
    """A file of scalars, one step for each window; what was not measured is left out.

    Args:
        folder: Where it goes; it must exist. A file of an earlier training there is replaced.

    Raises:
        StorageError: The file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Record
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._step = 0
        self._record = Record
        self._path = folder / FILE
        try:
            self._file = self._path.open("wb")
        except OSError as error:
            raise self._unwritable(error) from error
        self._writer = RecordWriter(self._file)
        self._writer.write(Record(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

    def add(self, event: Event) -> None:
        """Write what a window showed.

        Raises:
            StorageError: The disk is full.
        """
        from tensorboard.compat.proto.summary_pb2 import Summary

        if isinstance(event, EpisodeBegin):
            return
        figures = {TAGS.get(name, f"window/{name}"): event.figures.get(name, math.nan) for name in FIGURES}
        scalars = {
            "cost/measured": event.cost,
            "agent/level": float(event.level),
            "agent/configuration": float(event.configuration),
            "agent/learned": float(event.learned),
            **figures,
        }
        values = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
            if math.isfinite(value)
        ]
        record = self._record(wall_time=time.time(), step=self._step, summary=Summary(value=values))
        try:
            self._writer.write(record.SerializeToString())
            self._writer.flush()
        except OSError as error:
            raise self._unwritable(error) from error
        self._step += 1

    def close(self) -> None:
        """Finish the file. May be called twice."""
        with suppress(OSError):  # of what could not be written `add` has said so
            self._file.close()

    def _unwritable(self, error: OSError) -> StorageError:
        return StorageError(f"cannot write {self._path}: {error.strerror or error}")
