"""The rate of a recorded trace in the format of the public Azure LLM inference traces.

A CSV file with the heading ``TIMESTAMP,ContextTokens,GeneratedTokens`` and a line per request, in order of
time (github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace_code.csv and _conv.csv, CC-BY-4.0; Patel et
al.: Splitwise, ISCA 2024). Every line is checked; ``trace:FILE`` reads the times alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tuner.workload.recorded import Recorded
from tuner.workload.trace import moment_of, read_times

__all__ = ["HEADING", "Azure"]

HEADING = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, kw_only=True)
class Azure(Recorded):
    """The load of a trace in that format."""

    name: ClassVar[str] = "azure"
    about: ClassVar[str] = "a trace in the format of the Azure LLM inference traces"

    def _read(self, setting: str) -> np.ndarray:
        return read_times(self.file, setting, _time_of)


def _time_of(line: int, row: list[str]) -> float | None:
    """Return when a line's request came, s; None for the heading."""
    fields = [field.strip() for field in row]
    if line == 1:
        if tuple(fields) == HEADING:
            return None
        raise ValueError(f"is not the heading {','.join(HEADING)}; other traces are written trace:FILE")
    if len(fields) != len(HEADING):
        raise ValueError(f"has {len(fields)} fields, not {len(HEADING)}")
    for name, text in zip(HEADING[1:], fields[1:], strict=True):
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(f"{name} '{text:.40}' is not a number of tokens")
    time = moment_of(fields[0])
    if time is None:
        raise ValueError(f"'{fields[0]:.40}' is not a time such as 2023-11-16 18:17:03.9799600")
    return time
