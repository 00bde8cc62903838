"""``tuner plan query``: what it prints, stores, draws and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Run

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "query.yaml"
SCENARIO = EXAMPLE.with_name("query-scenario.yaml")
QUERY = """slo_ms: 400
stages:
  - {name: detect, profile_ms: {1: 8, 8: 30}, next: [{stage: recognise, gamma: 1.5}]}
  - {name: recognise, profile_ms: {1: 5, 8: 20}}
rate: 100
"""


def test_the_plan_is_shown_stored_and_drawn(run: Run) -> None:
    """A table, the same in JSON, and a picture."""
    Path("q.yaml").write_text(QUERY)

    code, out, err = run("plan", "query", "q.yaml", "--json", "plan.json", "--plot", "plan.png")

    stored = json.loads(Path("plan.json").read_text())
    assert (code, err) == (0, "")
    assert "0.75 accelerators" in out
    assert stored["accelerators"] == pytest.approx(0.75)
    assert stored["even_split"] == pytest.approx(0.75)
    assert [stage["name"] for stage in stored["stages"]] == ["detect", "recognise"]
    assert [stage["batch"] for stage in stored["stages"]] == [8, 8]
    assert sum(stage["budget_ms"] for stage in stored["stages"]) == pytest.approx(400)
    assert Path("plan.png").read_bytes().startswith(b"\x89PNG")


def test_the_example_can_be_planned(run: Run) -> None:
    """As the documentation says."""
    code, out, err = run("plan", "query", str(EXAMPLE))

    assert (code, err) == (0, "")
    assert "more queries on each than with an even split" in " ".join(out.split())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{1: 5, 8: 20}", "{1: 5, 8: 20}, next: [{stage: detect}]", "the query is cyclic"),
        (
            "stage: recognise",
            "stage: recognize",
            "line 2: stages: stage 'detect' calls 'recognize', which is no stage",
        ),
        ("slo_ms: 400", "slo_ms: 12", "no split meets 12 ms: detect -> recognise need 13 ms"),
        ("gamma: 1.5", "gamma: 0", "line 3: stages[0].next[0].gamma: must be greater than 0"),
        ("profile_ms: {1: 5, 8: 20}", "alpha_ms: 3", "give profile_ms, or alpha_ms and beta_ms"),
    ],
)
def test_mistakes(run: Run, old: str, new: str, said: str) -> None:
    """One error, exit code 2, and nothing is stored."""
    Path("q.yaml").write_text(QUERY.replace(old, new))

    code, out, err = run("plan", "query", "q.yaml", "--json", "plan.json")

    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert not Path("plan.json").exists()


def test_a_plot_is_a_picture(run: Run) -> None:
    """Another ending is refused before anything is planned."""
    Path("q.yaml").write_text(QUERY)

    code, _, err = run("plan", "query", "q.yaml", "--plot", "plan.txt")

    assert code == 2
    assert "--plot: plan.txt is no picture; let its name end in .png" in err


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


def test_mistakes_in_a_query_that_is_simulated(run: Run) -> None:
    """Named with line and field."""
    Path("s.yaml").write_text(SCENARIO.read_text().replace("policy: nexus", "policy: kairos"))

    code, _, err = run("simulate", "s.yaml")

    assert code == 2
    assert "line 8: policy: there is no 'kairos' for queries" in " ".join(err.split())
