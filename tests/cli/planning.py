"""Runs ``tuner plan`` on the text of a file; returns what was printed and stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.command_line import Run

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


class Planned(NamedTuple):
    """How a command ended. What it printed has no line breaks, which depend on the width."""

    code: int
    out: str
    err: str
    stored: Any
    """The content of its JSON file; None if there is none."""


Plan = Callable[..., Planned]


@pytest.fixture
def plan(run: Run) -> Plan:
    """Run ``tuner plan KIND`` in an empty folder, on a file with this text, and with further arguments."""

    def call(kind: str, text: str, *arguments: str) -> Planned:
        Path(f"{kind}.yaml").write_text(text)
        output = Path("plan.json")
        code, out, err = run("plan", kind, f"{kind}.yaml", "--json", str(output), *arguments)
        stored = json.loads(output.read_text()) if output.exists() else None
        return Planned(code, " ".join(out.split()), " ".join(err.split()), stored)

    return call
