"""``tuner simulate`` and ``tuner goodput`` on a mixed cluster: what they print, store and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numba
import pytest

from tests.command_line import Run

QUERIES = 200 if numba.config.DISABLE_JIT else 3000
FILE = f"""
policy: kairos
instances: [{{type: g4dn.xlarge, count: 2}}, {{type: r5n.large, count: 4}}]
catalogue: paper
sessions:
  - {{name: rank, model: rm2, qos_ms: 350, quantile: 0.99, rate: 30, arrival: poisson, sizes: paper}}
budget: 2.5
queries: {QUERIES}
seed: 1
"""


@pytest.fixture
def tuner(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in a folder with mixed.yaml."""
    monkeypatch.setenv("COLUMNS", "160")
    Path("mixed.yaml").write_text(FILE)
    return run


def test_simulate_tells_who_served_what(tuner, tmp_path):
    """The share within QoS, latencies, and the queries served by each type, printed and stored."""
    code, printed, _ = tuner("simulate", "mixed.yaml", "--json", "out.json", "--trace", "trace.json")

    stored = json.loads((tmp_path / "out.json").read_text())
    (session,) = stored["sessions"]
    assert code == 0
    assert "kairos on 2 x g4dn.xlarge, 4 x r5n.large for 1.648 $/h" in printed
    assert "% by g4dn.xlarge" in printed
    assert (stored["policy"], stored["seed"], stored["cost"]) == ("kairos", 1, 1.648)
    assert stored["instances"] == [{"type": "g4dn.xlarge", "count": 2}, {"type": "r5n.large", "count": 4}]
    assert stored["queries"] == QUERIES == sum(session["served"].values())
    assert 0.9 < session["within_qos"] <= 1
    assert session["p50_ms"] < session["p95_ms"] < session["p99_ms"]
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


@pytest.mark.compiled
def test_goodput_is_the_allowable_throughput(tuner, tmp_path):
    """The highest rate that keeps QoS, of the pool and of each session; the seed can be given."""
    code, printed, _ = tuner("goodput", "mixed.yaml", "--json", "out.json", "--seed", "7")

    stored = json.loads((tmp_path / "out.json").read_text())
    assert code == 0
    assert "queries/s keep QoS in every session" in printed
    assert stored["seed"] == 7
    assert 30 < stored["allowable_throughput"] < 90
    assert stored["sessions"][0]["allowable_throughput"] == stored["allowable_throughput"]
    assert stored["sessions"][0]["within_qos"] >= 0.99


@pytest.mark.parametrize("policy", ["ribbon", "clkwrk", "oracle"])
def test_every_policy_can_be_named(tuner, policy, tmp_path):
    """Rivals are simulated from the same file."""
    (tmp_path / "mixed.yaml").write_text(FILE.replace("kairos", policy))

    code, printed, _ = tuner("simulate", "mixed.yaml")

    assert code == 0
    assert f"{policy} on" in printed


@pytest.mark.compiled
def test_drs_finds_its_threshold(tuner, tmp_path):
    """Without a threshold in the file it is found by hill climbing, told and stored."""
    (tmp_path / "mixed.yaml").write_text(
        FILE.replace("kairos", "drs").replace(str(QUERIES), str(QUERIES // 4))
    )

    code, printed, _ = tuner("simulate", "mixed.yaml", "--json", "out.json")

    threshold = json.loads((tmp_path / "out.json").read_text())["options"]["threshold"]
    assert code == 0
    assert f"drs (threshold {threshold})" in printed
    assert 0 < threshold <= 1000


@pytest.mark.parametrize(
    ("command", "old", "new", "said"),
    [
        ("simulate", "rate: 30, ", "", "mixed.yaml line 6: sessions[0]: has no rate; give queries/s"),
        ("goodput", "qos_ms: 350", "qos_ms: -1", "line 6: sessions[0].qos_ms: must be greater than 0"),
        ("simulate", "r5n.large", "r5n.huge", "line 3: instances[1].type: the catalogue has no 'r5n.huge'"),
        ("goodput", "policy: kairos", "policy: fifo", "line 2: policy: must be 'kairos', 'ribbon'"),
        ("simulate", "instances:", "pool:", "has no `instances`; write instances:"),
        ("simulate", "seed: 1", "seed: [1", "is not valid YAML"),
    ],
)
def test_a_mistake_in_the_file_names_line_and_field(tuner, tmp_path, command, old, new, said):
    """Exit code 2, one message, nothing written."""
    (tmp_path / "mixed.yaml").write_text(FILE.replace(old, new, 1))

    code, _, errors = tuner(command, "mixed.yaml", "--json", "out.json")

    assert code == 2
    assert said in " ".join(errors.split())
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("simulate", "mixed.yaml", "--seconds", "3"),
            "--seconds: a mixed cluster is measured over its queries",
        ),
        (
            ("goodput", "mixed.yaml", "--seconds", "3"),
            "--seconds: a mixed cluster is measured over its queries",
        ),
        (
            ("goodput", "mixed.yaml", "--limit", "2%"),
            "--limit: the sessions of a mixed cluster each have a `quantile`",
        ),
        (
            ("goodput", "mixed.yaml", "--overall"),
            "--overall: the sessions of a mixed cluster each have a `quantile`",
        ),
        (("simulate", "none.yaml"), "none.yaml: cannot be read"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(tuner, arguments, said):
    """An option of the other kind of cluster is told from a mistake, not ignored."""
    code, _, errors = tuner(*arguments)

    assert code == 2
    assert said in " ".join(errors.split())
