"""``tuner simulate`` with a query: what it prints, stores and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.planning import EXAMPLES
from tests.command_line import Run

SCENARIO = EXAMPLES / "query-scenario.yaml"


def test_a_query_can_be_simulated(run: Run) -> None:
    """A file with a query and a policy; what is not for queries is refused."""
    code, out, err = run("simulate", str(SCENARIO), "--seconds", "1", "--json", "o.json")

    stored = json.loads(Path("o.json").read_text())
    assert (code, err) == (0, "")
    assert "good queries/s on 2 accelerators under nexus with proactive deadlines" in " ".join(out.split())
    assert stored["queries"] == stored["good"] + stored["late"] + stored["dropped"]
    assert [stage["name"] for stage in stored["stages"]] == ["detect", "recognise"]
    code, _, err = run("simulate", str(SCENARIO), "--trace", "t.json")
    assert (code, "--trace: is not written for a query" in err) == (2, True)


def test_a_stage_that_executes_nothing_has_no_mean_batch(run: Run) -> None:
    """It was shown as nan."""
    Path("s.yaml").write_text(SCENARIO.read_text().replace("gamma: 1.5", "gamma: 0.0001"))

    code, out, err = run("simulate", "s.yaml", "--seconds", "1")

    assert (code, err) == (0, "")
    assert "nan" not in out
    (row,) = [cells for line in out.splitlines() if (cells := line.split())[:1] == ["recognise"]]
    assert row[2:] == ["0.0", "0.00", "–"]


@pytest.mark.parametrize(
    ("written", "mistaken", "said"),
    [
        ("policy: nexus", "policy: kairos", "line 8: policy: there is no 'kairos' for queries"),
        (
            "deadlines: proactive",
            "options: {ordr: adaptive}",
            "line 9: options.ordr: nexus has no such option",
        ),
        (
            "deadlines: proactive",
            "options: {order: adaptiv}",
            "line 9: options: order: there is no 'adaptiv'",
        ),
        ("seconds: 20", "arrival: posson", "line 12: arrival: 'posson' is not known; write poisson"),
        ("seconds: 20", "arrival: trace:none.csv", "line 12: arrival: there is no file"),
        (
            "seconds: 20",
            "arrival: integer_poisson",
            "line 12: arrival: integer_poisson needs a constant rate",
        ),
        (
            "seconds: 20",
            "budgets_ms: {detect: 500, recognise: 150}",
            "line 12: budgets_ms: take 650 ms along a",
        ),
        (
            "seconds: 20",
            "budgets_ms: {detect: 250}",
            "line 12: budgets_ms: must name each stage once, but not",
        ),
        (
            "seconds: 20",
            "budgets_ms: {detect: 250, recognise: 1}",
            "line 12: budgets_ms: recognise needs 9 ms",
        ),
        (
            "load: [[0, 100], [10, 160]]\nseconds: 20",
            "load: 1e9\nseconds: 999",
            "line 12: seconds: would be 2e+12 requests; at most 1e+12 are simulated",
        ),
    ],
)
def test_mistakes_in_a_query_that_is_simulated(run: Run, written: str, mistaken: str, said: str) -> None:
    """Named with line and field."""
    Path("s.yaml").write_text(SCENARIO.read_text().replace(written, mistaken))

    code, _, err = run("simulate", "s.yaml")

    assert code == 2
    assert said in " ".join(err.split())


def test_too_many_requests_by_the_option_are_refused(run: Run) -> None:
    """What the file allows, --seconds may make endless."""
    Path("s.yaml").write_text(SCENARIO.read_text().replace("[[0, 100], [10, 160]]", "1e9"))

    code, _, err = run("simulate", "s.yaml", "--seconds", "100000")

    assert (code, err) == (2, "error: --seconds: would be 3e+14 requests; at most 1e+12 are simulated\n")


def test_the_trace_of_a_query_is_beside_its_file(run: Run) -> None:
    """It is played at the query's rate."""
    Path("there").mkdir()
    Path("there/times.csv").write_text("\n".join(str(number) for number in range(300)))
    text = SCENARIO.read_text().replace("load: [[0, 100], [10, 160]]", "arrival: trace:times.csv")
    Path("there/s.yaml").write_text(text)

    code, _, err = run("simulate", "there/s.yaml", "--seconds", "1", "--json", "o.json")

    assert (code, err) == (0, "")
    assert json.loads(Path("o.json").read_text())["queries"] == 100
