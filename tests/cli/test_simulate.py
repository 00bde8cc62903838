"""``tuner simulate`` and ``tuner goodput``: what they print and store, and how they tell mistakes."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from tests.command_line import Run
from tests.docs.page import blocks, run_commands
from tuner.cli.scenario import bad_text
from tuner.cluster.goodput import Good
from tuner.cluster.outcome import Outcome, SessionOutcome
from tuner.cluster.pipelines.scenario import PipelineScenario
from tuner.cluster.scenario import Scenario
from tuner.errors import InvalidInput
from tuner.files.yaml_file import load_yaml
from tuner.scheduling.catalogue import DISTRIBUTION_POLICIES, POLICIES, options_of

ROOT = Path(__file__).parents[2]
SMALL = """
policy: eager
accelerators: 2
sessions:
  - {name: resnet50, alpha_ms: 1.053, beta_ms: 5.072, slo_ms: 25, rate: 200}
  - {name: other, profile_ms: [6, 7, 8], slo_ms: 30, rate: 50, arrival: constant}
network: {control_ms: 0.1, data_ms_per_request: 0.05, response_ms: 2}
seconds: 1
warmup_seconds: 0.2
"""
FIELDS = "name requests good dropped late p50_ms p95_ms p99_ms mean_batch median_batch max_queueing_ms"


@pytest.fixture
def tuner(run: Run) -> Run:
    """Run the command line in a folder with cluster.yaml."""
    Path("cluster.yaml").write_text(SMALL)
    return run


def test_simulate_prints_and_stores(tuner: Run, tmp_path: Path) -> None:
    """A table for people; JSON with the promised fields, which add up."""
    code, printed, _ = tuner("simulate", "cluster.yaml", "--json", "out.json", "--seed", "3")

    stored = json.loads((tmp_path / "out.json").read_text())
    assert code == 0
    assert "resnet50" in printed
    assert "out.json" in printed
    assert list(stored) == ["policy", "seed", "seconds", "sessions", "utilisation", "bad_rate"]
    assert (stored["policy"], stored["seed"], stored["seconds"]) == ("eager", 3, 1.0)
    assert [list(session) for session in stored["sessions"]] == [FIELDS.split()] * 2
    assert stored["sessions"][1]["requests"] == pytest.approx(50, abs=1)
    for session in stored["sessions"]:
        assert session["good"] + session["dropped"] + session["late"] == session["requests"]
        assert 8 < session["p50_ms"] <= session["p95_ms"] <= session["p99_ms"] <= 30.3
    assert len(stored["utilisation"]) == 2
    assert all(0 < share < 1 for share in stored["utilisation"])
    assert 0 <= stored["bad_rate"] < 0.1


@pytest.mark.parametrize(
    ("bad", "requests", "interval"),
    [
        (1000, 1000, "99.62 to 100 %"),
        (9990, 10_000, "99.82 to 99.95 %"),
        (3, 100, "1 to 8.5 %"),
        (0, 100_000_000, "0 to 0.0000038 %"),
    ],
)
def test_a_share_has_no_exponent(bad: int, requests: int, interval: str) -> None:
    """Neither where nearly all requests are bad, nor where nearly none is."""
    none = np.zeros(1, np.int64)
    session = SessionOutcome(
        name="a",
        slo=0.025,
        quantile=0.99,
        seconds=1.0,
        good=requests - bad,
        late=bad,
        dropped=0,
        mean_latency=0.0,
        mean_queueing=0.0,
        max_queueing=0.0,
        latencies=none,
        batches=none,
        served=none,
    )

    assert f"({interval}, " in bad_text(Outcome(sessions=(session,), utilisation=(), seconds=1.0))


def test_the_same_seed_gives_the_same_file(tuner: Run, tmp_path: Path) -> None:
    """And another seed another one; --seconds takes the place of the file's."""
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        tuner("simulate", "cluster.yaml", "--seed", seed, "--seconds", "0.5", "--json", name)

    a, b, c = ((tmp_path / name).read_text() for name in "abc")
    assert a == b != c
    assert json.loads(a)["seconds"] == 0.5


def test_a_trace_shows_every_batch(tuner: Run, tmp_path: Path) -> None:
    """In the format of Chrome's viewer."""
    tuner("simulate", "cluster.yaml", "--trace", "trace.json")

    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    batches = [event for event in events if event["ph"] == "X"]
    assert {event["name"].split()[0] for event in batches} == {"resnet50", "other"}
    assert all(event["dur"] > 0 for event in batches)


@pytest.mark.compiled
def test_goodput_prints_and_stores(tuner: Run, tmp_path: Path) -> None:
    """The rate, and how it was served; two accelerators cannot serve more than their capacity."""
    (tmp_path / "cluster.yaml").write_text(SMALL.replace("rate: 50", "rate: 200"))

    code, printed, _ = tuner("goodput", "cluster.yaml", "--json", "out.json", "--overall", "--limit", "2%")

    stored = json.loads((tmp_path / "out.json").read_text())
    assert code == 0
    known = ["policy", "seed", "seconds", "rate", "sessions", "utilisation", "bad_rate"]
    assert list(stored) == [*known, "low", "high", "seeds"]
    assert stored["low"] <= stored["rate"] <= stored["high"]
    assert 300 < stored["rate"] < 1500
    assert 0 < stored["bad_rate"] <= 0.02
    assert "with at most 2 % of all requests late or dropped" in printed


def test_the_threshold_is_searched_by_the_limits_of_the_goodput(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the command line, by which the rate is found, too."""
    Path("drs.yaml").write_text(
        (ROOT / "docs" / "examples" / "mixed.yaml").read_text().replace("policy: kairos", "policy: drs")
    )
    given: list[Good] = []

    def climb(scenario: Scenario, *, good: Good, progress: object) -> NoReturn:
        given.append(good)
        raise InvalidInput("threshold", "is not looked for here")

    monkeypatch.setattr("tuner.cluster.threshold.climb_threshold", climb)

    for arguments in (("goodput", "--limit", "10%", "--overall"), ("goodput",), ("simulate",)):
        command, *options = arguments
        assert run(command, "drs.yaml", *options).code == 2

    assert given == [Good(0.1, overall=True), Good(), Good()]


@pytest.mark.parametrize(("command", "code"), [("simulate", 0), ("goodput", 2), ("plan placement", 2)])
def test_without_requests_there_is_an_outcome_but_no_goodput(run: Run, command: str, code: int) -> None:
    """The schedule begins after the 11 s that are simulated by default."""
    Path("late.yaml").write_text(
        "policy: nexus\naccelerators: 1\nsessions:\n"
        "  - {name: a, alpha_ms: 1, beta_ms: 5, slo_ms: 60, rate: [[0, 0], [20, 500]]}\n"
    )

    ended = run(*command.split(), "late.yaml")

    problem = "error: rate: no request comes in the 11 s that are simulated; measure longer\n"
    assert (ended.code, ended.err) == (code, problem if code else "")


@pytest.mark.parametrize("command", ["simulate", "goodput"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slo_ms: 25", "slo_ms: -25", "cluster.yaml line 5: sessions[0].slo_ms: must be greater than 0"),
        ("slo_ms: 25", "slo_ms: 3", "line 5: sessions[0].slo_ms: must be at least 6.125 ms"),
        ("policy: eager", "policy: eagr", "line 2: policy: there is no 'eagr'; use one of symphony, eager"),
        ("rate: 50", "rat: 50", "line 6: sessions[1].rat: there is no such field; did you mean 'rate'?"),
        ("accelerators: 2", "accelerators: two", "line 3: accelerators: must be a valid integer"),
        ("constant", "trace:no.csv", "line 6: sessions[1].arrival: there is no file no.csv"),
        ("response_ms: 2", "response_ms: slow", "line 7: network.response_ms: 'slow' is not a delay"),
        ("seconds: 1\n", "seconds: 1\nseconds: 2\n", "line 9: seconds: is given twice, first in line 8"),
        ("policy: eager", "policy: {eager", "line 3: is not valid YAML"),
        ("rate: 50", "rate: .nan", "line 6: sessions[1].rate: must lie between 1e-06 and 1e+09 requests/s"),
        ("rate: 50", "rate: 50, copies: 20000", "line 4: sessions: can be 20,000 at most, but are 20,001"),
        (
            "accelerators: 2",
            "accelerators: [{kind: a, count: 999999}, {kind: b, count: 2}]",
            "line 3: accelerators: can be 1,000,000 at most, but are 1,000,001",
        ),
        ("seconds: 1\n", "seconds: 1e300\n", "line 8: seconds: must be less than or equal to 10000000"),
        ("rate: 200", "rate: 1e9, copies: 1001", "line 8: seconds: would be 1e+12 requests; at most 1e+12"),
        (
            "policy: eager",
            "policy: clipper\noptions: {share: 2}",
            "line 3: options: share: 2.0 is not between",
        ),
        (
            "policy: eager\naccelerators: 2\nsessions:\n  - {",
            "planner: symphony\nmemory_mib: 10\naccelerators: 2\nsessions:\n  - {memory_mib: 12, ",
            "line 3: memory_mib: is 10, but every accelerator loads all models under symphony: 12 MiB",
        ),
        (
            "policy: eager\n",
            "planner: nexus\nrequests: 50\n",
            "line 3: requests: a `planner` needs `accelerators` and `seconds`; leave it out",
        ),
        (
            "policy: eager\naccelerators: 2\n",
            "planner: symphony\ninstances: [{type: g4dn.xlarge, count: 1}]\n",
            "line 3: instances: a `planner` needs `accelerators` and `seconds`; leave it out",
        ),
    ],
)
def test_a_mistake_in_the_file_names_line_and_field(
    tuner: Run, tmp_path: Path, command: str, old: str, new: str, said: str
) -> None:
    """Exit code 2, one message, nothing written."""
    (tmp_path / "cluster.yaml").write_text(SMALL.replace(old, new, 1))

    code, _, errors = tuner(command, "cluster.yaml", "--json", "out.json")

    assert code == 2
    assert said in errors
    assert errors.startswith("error: cluster.yaml")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulate", "missing.yaml"], "missing.yaml: cannot be read"),
        (
            ["simulate", "cluster.yaml", "--json", "cluster.yaml/out.json"],
            "--json: cannot write to",
        ),
        (["simulate", "cluster.yaml", "--trace", "cluster.yaml/t.json"], "--trace: cannot write to"),
        (["goodput", "cluster.yaml", "--limit", "200%"], "--limit: '200%' is not a share"),
        (["goodput", "cluster.yaml", "--limit", "some"], "write 1% or 0.01"),
        (["simulate", "cluster.yaml", "--seed", "-1"], "--seed"),
        (["simulate", "cluster.yaml", "--seconds", "0"], "--seconds"),
        (["simulate", "cluster.yaml", "--seconds", "inf"], "--seconds"),
        (
            ["simulate", "cluster.yaml", "--json", "."],
            "error: --json: . is a folder; write the name of a file",
        ),
        (
            ["simulate", "cluster.yaml", "--trace", "/"],
            "error: --trace: / is a folder; write the name of a file",
        ),
    ],
)
def test_mistakes_on_the_command_line(tuner: Run, arguments: list[str], said: str) -> None:
    """Exit code 2 and the option's name."""
    code, _, errors = tuner(*arguments)

    assert code == 2
    assert said in errors


def test_many_sessions_are_cut_to_the_worst(tuner: Run, tmp_path: Path) -> None:
    """The table stays readable; the file holds all."""
    (tmp_path / "cluster.yaml").write_text(SMALL.replace("rate: 200", "rate: 2, copies: 60"))

    _, printed, _ = tuner("simulate", "cluster.yaml", "--json", "out.json")

    assert "the 40 sessions of 61 with the highest bad rate" in printed
    assert len(json.loads((tmp_path / "out.json").read_text())["sessions"]) == 61


def test_too_many_requests_by_the_option_are_refused(tuner: Run, tmp_path: Path) -> None:
    """What the file allows, --seconds may make endless."""
    (tmp_path / "cluster.yaml").write_text(SMALL.replace("rate: 200", "rate: 1e9"))

    code, _, errors = tuner("simulate", "cluster.yaml", "--seconds", "10000")

    assert code == 2
    assert errors == "error: --seconds: would be 1e+13 requests; at most 1e+12 are simulated\n"


def test_too_little_memory_is_told_in_a_line(tuner: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is that does not fit."""

    def simulate(*arguments: object, **options: object) -> NoReturn:
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr("tuner.cluster.simulate", simulate)

    code, _, errors = tuner("simulate", "cluster.yaml")

    assert code == 2
    assert errors == "error: this needs more memory than there is: Unable to allocate 7.28 TiB\n"


@pytest.mark.parametrize("command", ["simulate", "goodput"])
def test_interrupting_leaves_no_half_file(
    tuner: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Ctrl-C in the middle of a simulation ends with code 130, and nothing is written."""

    def interrupt(simulation: object, until: float) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("tuner.cluster.simulation.Simulation.steps", interrupt)

    code, _, _ = tuner(command, "cluster.yaml", "--json", "out.json")

    assert code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.yaml"]


def test_the_example_of_the_documentation(tuner: Run) -> None:
    """docs/examples/cluster.yaml runs as it stands."""
    code, printed, _ = tuner("simulate", str(ROOT / "docs/examples/cluster.yaml"), "--seconds", "0.2")

    assert code == 0
    assert "inception" in printed


@pytest.mark.slow
def test_commands_of_the_page_run(run: Run, tmp_path: Path) -> None:
    """Every command of docs/simulate.md, from the folder that holds the documentation."""
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")

    run_commands(run, ROOT / "docs" / "simulate.md")

    assert json.loads((tmp_path / "goodput.json").read_text())["rate"] > 2000
    assert (tmp_path / "trace.json").exists()


def test_the_file_of_the_page_is_valid(tmp_path: Path) -> None:
    """The first block is a whole file, the second a network to put in its place, the third a query."""
    whole, network, query = blocks(ROOT / "docs" / "simulate.md", "yaml")
    (tmp_path / "whole.yaml").write_text(whole)
    other = "".join(line for line in whole.splitlines(keepends=True) if not line.startswith("network"))
    (tmp_path / "other.yaml").write_text(other + network)
    (tmp_path / "query.yaml").write_text(query)

    assert load_yaml(tmp_path / "whole.yaml", Scenario).total_rate == 5000
    assert load_yaml(tmp_path / "other.yaml", Scenario).network.allowed().control == pytest.approx(0.2e-3)
    assert len(load_yaml(tmp_path / "query.yaml", PipelineScenario).query.stages) == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_the_page_tells_every_option(policy: str) -> None:
    """Each batching policy with its options is in simulate.md, each other one in mixed-instances.md."""
    name = "mixed-instances.md" if policy in DISTRIBUTION_POLICIES else "simulate.md"
    page = (ROOT / "docs" / name).read_text()

    section = page.partition(f"### {policy}\n")[2].partition("\n#")[0]
    told = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    assert told == {field.name for field in dataclasses.fields(options_of(policy))}


def test_a_planner_plans_again_every_epoch(run: Run) -> None:
    """Each interval is shown, what is desired at the end written for an autoscaler; a trace is refused."""
    Path("e.yaml").write_text(
        "planner: nexus\nepoch_s: 5\naccelerators: 4\nseconds: 15\nwarmup_seconds: 0\nsessions:\n"
        "  - {name: a, alpha_ms: 2, beta_ms: 10, slo_ms: 100, memory_mib: 100, rate: [[0, 100], [5, 500]]}\n"
    )

    code, out, err = run("simulate", "e.yaml", "--json", "e.json", "--metrics", "e.prom")

    stored = json.loads(Path("e.json").read_text())
    assert (code, err) == (0, "")
    assert "desired at the end" in out
    assert stored["planner"] == "nexus"
    assert [epoch["time"] for epoch in stored["epochs"]] == [5.0, 10.0, 15.0]
    desired = stored["desired_accelerators"]
    assert f'servetune_desired_accelerators{{cluster="e"}} {desired}' in Path("e.prom").read_text()
    assert run("simulate", "e.yaml", "--trace", "t.json")[0] == 2


def test_what_speaks_against_a_result_is_noted_with_a_planner_too(run: Run) -> None:
    """A trace of 3 s of the 2 that are simulated, and few requests."""
    Path("times.txt").write_text("".join(f"{0.1 * number:.1f}\n" for number in range(31)))
    Path("e.yaml").write_text(
        "planner: symphony\naccelerators: 1\nseconds: 2\nwarmup_seconds: 0\nsessions:\n"
        "  - {name: a, alpha_ms: 2, beta_ms: 10, slo_ms: 100, arrival: 'trace:times.txt'}\n"
    )

    code, out, _ = run("simulate", "e.yaml")

    assert code == 0
    printed = " ".join(out.split())
    assert "only 20 requests of a were simulated" in printed
    assert "the trace of a lasts 3 s, and 2 s are simulated: the rest plays no part" in printed
