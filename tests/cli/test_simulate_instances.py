"""``tuner simulate`` and ``tuner goodput`` on rented instances: what they print, store and refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numba
import pytest

from tests.command_line import Run

REQUESTS = 200 if numba.config.DISABLE_JIT else 3000  # type: ignore[attr-defined]
FILE = f"""
policy: kairos
instances: [{{type: g4dn.xlarge, count: 2}}, {{type: r5n.large, count: 4}}]
catalogue: paper
sessions:
  - {{name: rank, model: rm2, slo_ms: 350, quantile: 0.99, rate: 30, arrival: poisson, sizes: paper}}
budget: 2.5
requests: {REQUESTS}
seed: 1
"""


@pytest.fixture
def tuner(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in a folder with mixed.yaml."""
    monkeypatch.setenv("COLUMNS", "160")
    Path("mixed.yaml").write_text(FILE)
    return run


def test_simulate_shows_who_served_what(tuner: Run, tmp_path: Path) -> None:
    """The share within the SLO, latencies, and the requests served by each type, printed and stored."""
    code, printed, _ = tuner("simulate", "mixed.yaml", "--json", "out.json", "--trace", "trace.json")

    stored = json.loads((tmp_path / "out.json").read_text())
    (session,) = stored["sessions"]
    assert code == 0
    assert "kairos on 2 x g4dn.xlarge, 4 x r5n.large for 1.648 $/h" in printed
    assert "% by g4dn.xlarge" in printed
    assert (stored["policy"], stored["seed"], stored["cost"]) == ("kairos", 1, 1.648)
    assert stored["instances"] == [{"type": "g4dn.xlarge", "count": 2}, {"type": "r5n.large", "count": 4}]
    assert stored["requests"] == REQUESTS == sum(session["served"].values())
    assert 0.9 < session["within_slo"] <= 1
    assert session["p50_ms"] < session["p95_ms"] < session["p99_ms"]
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


@pytest.mark.compiled
def test_goodput_keeps_the_quantile(tuner: Run, tmp_path: Path) -> None:
    """The highest rate at which the quantile is kept; the seed can be given."""
    code, printed, _ = tuner("goodput", "mixed.yaml", "--json", "out.json", "--seed", "7", "--seeds", "1")

    stored = json.loads((tmp_path / "out.json").read_text())
    assert code == 0
    assert "requests/s with at most 1 % of each session's requests late or dropped" in " ".join(
        printed.split()
    )
    assert stored["seed"] == 7
    assert 30 < stored["rate"] < 90
    assert stored["sessions"][0]["rate"] == pytest.approx(stored["rate"], rel=0.05)
    assert stored["sessions"][0]["within_slo"] >= 0.99
    assert stored["kept"]


@pytest.mark.parametrize("policy", ["ribbon", "clkwrk", "oracle"])
def test_every_policy_can_be_named(tuner: Run, policy: str, tmp_path: Path) -> None:
    """Rivals are simulated from the same file."""
    (tmp_path / "mixed.yaml").write_text(FILE.replace("kairos", policy))

    code, printed, _ = tuner("simulate", "mixed.yaml")

    assert code == 0
    assert f"{policy} on" in printed


@pytest.mark.compiled
def test_drs_finds_its_threshold(tuner: Run, tmp_path: Path) -> None:
    """Without a threshold in the file it is found by hill climbing, shown and stored."""
    (tmp_path / "mixed.yaml").write_text(
        FILE.replace("kairos", "drs").replace(str(REQUESTS), str(REQUESTS // 4))
    )

    code, printed, _ = tuner("simulate", "mixed.yaml", "--json", "out.json")

    threshold = json.loads((tmp_path / "out.json").read_text())["options"]["threshold"]
    assert code == 0
    assert f"drs (threshold {threshold})" in printed
    assert 0 < threshold <= 1000


@pytest.mark.compiled
def test_the_threshold_of_drs_on_accelerators(tuner: Run, tmp_path: Path) -> None:
    """It is shown and stored, too; a line that is short enough for larger batches says nothing of them."""
    (tmp_path / "own.yaml").write_text(
        "policy: drs\naccelerators: 2\nrequests: 200\n"
        "sessions: [{name: a, alpha_ms: 0.01, beta_ms: 5, slo_ms: 40, rate: 100, sizes: 'gaussian:100,20'}]\n"
    )

    code, printed, _ = tuner("simulate", "own.yaml", "--json", "out.json")

    threshold = json.loads((tmp_path / "out.json").read_text())["options"]["threshold"]
    assert code == 0
    assert f"drs (threshold {threshold}), 2 accelerators" in printed
    assert "batches of a" not in printed


@pytest.mark.parametrize(
    ("command", "old", "new", "said"),
    [
        ("simulate", "rate: 30, ", "", "mixed.yaml line 6: sessions[0]: has no rate; give requests/s"),
        ("goodput", "slo_ms: 350", "slo_ms: -1", "line 6: sessions[0].slo_ms: must be greater than 0"),
        ("simulate", "r5n.large", "r5n.huge", "line 3: instances[1].type: the catalogue has no 'r5n.huge'"),
        (
            "goodput",
            "policy: kairos",
            "policy: fifo",
            "line 2: policy: there is no 'fifo'; use one of symphony, eager",
        ),
        ("simulate", "instances:", "pool:", "line 3: pool: there is no such field"),
        ("goodput", "slo_ms", "qos_ms", "line 6: sessions[0].qos_ms: is called `slo_ms` now; rename it"),
        ("simulate", "seed: 1", "seed: [1", "is not valid YAML"),
    ],
)
def test_a_mistake_in_the_file_names_line_and_field(
    tuner: Run, tmp_path: Path, command: str, old: str, new: str, said: str
) -> None:
    """Exit code 2, one message, nothing written."""
    (tmp_path / "mixed.yaml").write_text(FILE.replace(old, new, 1))

    code, _, errors = tuner(command, "mixed.yaml", "--json", "out.json")

    assert code == 2
    assert said in " ".join(errors.split())
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", "mixed.yaml", "--seconds", "3"), "--seconds: the file is measured over its `requests`"),
        (("goodput", "mixed.yaml", "--seconds", "3"), "--seconds: the file is measured over its `requests`"),
        (("simulate", "none.yaml"), "none.yaml: cannot be read"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(tuner: Run, arguments: Sequence[str], said: str) -> None:
    """A time for a file that gives a number of requests is refused, not ignored."""
    code, _, errors = tuner(*arguments)

    assert code == 2
    assert said in " ".join(errors.split())


@pytest.mark.compiled
def test_another_limit_and_a_measured_time(tuner: Run, tmp_path: Path) -> None:
    """Instances may be measured over a time, too, and `--limit` stands in place of the quantiles."""
    (tmp_path / "mixed.yaml").write_text(FILE.replace(f"requests: {REQUESTS}", "seconds: 20"))

    strict = tuner("goodput", "mixed.yaml", "--json", "strict.json")
    loose = tuner("goodput", "mixed.yaml", "--json", "loose.json", "--limit", "20%", "--overall")

    rates = [json.loads((tmp_path / name).read_text())["rate"] for name in ("strict.json", "loose.json")]
    assert (strict[0], loose[0]) == (0, 0)
    assert 0 < rates[0] < rates[1]
    assert "with at most 20 % of all requests late or dropped" in " ".join(loose[1].split())
