"""The workloads there are, and how one is written in a line: ``NAME`` or ``NAME:PARAMETER=NUMBER,...``.

========================================  ==========================================================
``constant``                              the nominal rate
``wikipedia:spikes=0,days=1``             two parameters, the others at their defaults
``trace:FILE.csv,burstiness=1``           a file comes first, and needs no name
========================================  ==========================================================
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from tuner.errors import InvalidInput, check_choice
from tuner.workload.azure import Azure
from tuner.workload.dynamic import Dynamic
from tuner.workload.recorded import Recorded
from tuner.workload.shapes import Burst, Constant, Ramp, Step
from tuner.workload.wikipedia import Wikipedia
from tuner.workload.workload import SETTING, Workload

__all__ = ["WORKLOADS", "split_file", "workload"]

WORKLOADS: dict[str, type[Workload]] = {
    kind.name: kind for kind in (Constant, Dynamic, Wikipedia, Recorded, Azure, Step, Ramp, Burst)
}
"""Workloads by name."""


def workload(spec: str, rate: float, setting: str = SETTING) -> Workload:
    """Make a workload from its spec.

    Args:
        spec: Such as ``dynamic`` or ``step:low=0.7,high=1.2,at=0.5``.
        rate: The nominal rate, requests/s.
        setting: The setting it belongs to, for the error.

    Raises:
        InvalidInput: An unknown name or parameter (lists those there are), or an unusable value.
    """
    name, _, rest = spec.strip().partition(":")
    check_choice(setting, name, WORKLOADS)
    kind = WORKLOADS[name]
    values: dict[str, Any] = {}
    if kind.takes_file:
        file, rest = split_file(rest)
        if not file:
            raise InvalidInput(f"{setting} {name}", "names no file", f"write {name}:FILE.csv")
        values["file"] = Path(file)
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, value = _assignment(kind, part, setting)
        if key in values:
            raise InvalidInput(f"{setting} {name}", f"{key} is given twice", "keep one of them")
        values[key] = value
    return kind(rate=float(rate), **values)


def split_file(rest: str) -> tuple[str, str]:
    """Split what follows the colon into the file, whose name may hold commas, and the parameters."""
    begin = re.search(r",\s*\w+\s*=", rest)
    end = begin.start() if begin else len(rest)
    return rest[:end].strip(), rest[end:]


def _assignment(kind: type[Workload], part: str, setting: str) -> tuple[str, float]:
    """Read ``PARAMETER=NUMBER``."""
    known = [field.name for field in kind.parameters()]
    key, equals, text = (piece.strip() for piece in part.partition("="))
    if not equals:
        raise InvalidInput(f"{setting} {kind.name}", f"'{part}' has no '='", f"write {known[0]}=NUMBER")
    if key not in known:
        close = difflib.get_close_matches(key, known, 1)
        fix = f"did you mean {close[0]}?" if close else f"use {', '.join(known)}"
        raise InvalidInput(f"{setting} {kind.name}", f"there is no parameter '{key}'", fix)
    try:
        return key, float(text)
    except ValueError:
        raise InvalidInput(f"{setting} {kind.name}", f"{key}='{text}' is not a number") from None
