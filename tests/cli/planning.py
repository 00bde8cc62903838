"""Runs ``tuner plan`` on the text of a file, such as these; returns what was printed and stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.command_line import Run

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SESSION = "sessions: [{name: s, model: m, slo_ms: 40, sizes: 'gaussian:100,20'}]\n"
CATALOGUE = """catalogue:
  - {name: gpu, price: 1.0, max_count: 3, profile: {m: {alpha_ms: 0.01, beta_ms: 5}}}
  - {name: cpu, price: 0.1, max_count: 9, profile: {m: {1: 1, 64: 20, 128: 19, 256: 80}}}
"""
CLUSTER = """backends: {count: 8, memory_mib: 11000}
sessions:
  - {name: a, slo_ms: 200, rate: 64, memory_mib: 500, profile_ms: {4: 50, 8: 75, 16: 100}}
  - {name: b, slo_ms: 250, rate: 32, memory_mib: 500, profile_ms: {4: 50, 8: 90, 16: 125}}
  - {name: c, slo_ms: 250, rate: 32, memory_mib: 700, profile_ms: {4: 60, 8: 95, 16: 125}}
"""
PREFIXED = """backends: {memory_mib: 1000}
prefixes:
  - {name: body, memory_mib: 90, alpha_ms: 1, beta_ms: 9}
sessions:
  - {name: cats, prefix: body, slo_ms: 60, rate: 300, memory_mib: 2, alpha_ms: 0.1, beta_ms: 0.5}
  - {name: dogs, prefix: body, slo_ms: 60, rate: 100, memory_mib: 3, alpha_ms: 0.1, beta_ms: 0.5}
  - {name: other, slo_ms: 60, rate: 10, memory_mib: 5, alpha_ms: 1, beta_ms: 9}
"""
PARTITION = """partitions: 2
memory_mib: 1000
models:
  - {name: a, rate: 300, memory_mib: 600}
  - {name: b, rate: 100, memory_mib: 200}
  - {name: c, rate: 200, memory_mib: 400}
"""
QUERY = """slo_ms: 400
stages:
  - {name: detect, profile_ms: {1: 8, 8: 30}, next: [{stage: recognise, gamma: 1.5}]}
  - {name: recognise, profile_ms: {1: 5, 8: 20}}
rate: 100
"""


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
