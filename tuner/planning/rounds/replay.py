"""The replay log of Nexus on Blox: a line for each job (course report, section 4.3, figure 3).

``job_id, model_name, slo, inputRequest_rate, arrival_t``, separated by commas; the SLO in ms, the rate in
requests/s, the arrival in s. Angle brackets around a line, a first line with these names, empty lines and
lines that begin with ``#`` are allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tuner.errors import InvalidInput, StorageError
from tuner.files.storage import read_file, write_atomically
from tuner.printable import one_line

__all__ = ["FIELDS", "InferenceJob", "read_replay", "write_replay"]

FIELDS = ("job_id", "model_name", "slo", "inputRequest_rate", "arrival_t")
LARGEST = 100_000_000
"""Bytes."""
MOST = (1e9, 1e9, 1e10)
"""slo, ms; inputRequest_rate, requests/s; arrival_t, s."""


class InferenceJob(NamedTuple):
    """Requests for one model, at a rate, from one round on."""

    name: str
    model: str
    slo: float
    """s"""
    rate: float
    """requests/s"""
    arrival: float
    """s"""


def read_replay(path: Path) -> list[InferenceJob]:
    """Return the jobs of a log in the order of their arrival.

    Raises:
        StorageError: The file cannot be read.
        InvalidInput: A line is broken, or two jobs have one name; names the line.
    """
    try:
        text = read_file(path, LARGEST).decode("utf-8-sig")
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise InvalidInput(str(path), "is not UTF-8 text", "save it as UTF-8") from None
    jobs: dict[str, InferenceJob] = {}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        parts = [part.strip() for part in bare.removeprefix("<").removesuffix(">").split(",")]
        if not jobs and tuple(parts) == FIELDS:
            continue
        try:
            job = _job(parts)
        except ValueError as error:
            raise InvalidInput(f"{path} line {number}", one_line(str(error), 200)) from None
        if job.name in jobs:
            raise InvalidInput(f"{path} line {number}", f"job {one_line(job.name, 50)} is there already")
        jobs[job.name] = job
    if not jobs:
        raise InvalidInput(str(path), "has no jobs", f"write lines of {', '.join(FIELDS)}")
    return sorted(jobs.values(), key=lambda job: job.arrival)


def _job(parts: list[str]) -> InferenceJob:
    if len(parts) != len(FIELDS):
        raise ValueError(f"has {len(parts)} fields, but needs {', '.join(FIELDS)}")
    name, model = parts[:2]
    if not (name and model):
        raise ValueError("has no job_id or no model_name")
    numbers = []
    for field, part in zip(FIELDS[2:], parts[2:], strict=True):
        try:
            numbers.append(float(part))
        except ValueError:
            raise ValueError(f"{field} {part!r} is not a number") from None
    slo, rate, arrival = numbers
    if not (0 < slo < math.inf and 0 < rate < math.inf and 0 <= arrival < math.inf):
        raise ValueError("slo and inputRequest_rate must be positive and finite, arrival_t at least 0")
    for field, number, most in zip(FIELDS[2:], numbers, MOST, strict=True):
        if number > most:
            raise ValueError(f"{field} must be at most {most:g}, but is {number:g}")
    return InferenceJob(name=name, model=model, slo=slo / 1e3, rate=rate, arrival=arrival)


def write_replay(path: Path, jobs: Iterable[InferenceJob]) -> None:
    """Write a log that :func:`read_replay` reads.

    Raises:
        ValueError: A name holds a mark of the log's form.
        OSError: The file cannot be written.
    """
    lines = [", ".join(FIELDS)]
    for job in jobs:
        if any(mark in text for text in (job.name, job.model) for mark in ",\n<>#"):
            raise ValueError(f"names in a replay log hold no commas, brackets and `#`, but got {job}")
        slo, rate, arrival = float(job.slo), float(job.rate), float(job.arrival)  # numpy's show their type
        lines.append(f"{job.name}, {job.model}, {slo * 1e3!r}, {rate!r}, {arrival!r}")
    write_atomically(path, "\n".join(lines) + "\n")
