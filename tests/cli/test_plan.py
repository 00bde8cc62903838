"""``tuner plan``: what it prints, stores and draws."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.planning import CATALOGUE, CLUSTER, EXAMPLES, PARTITION, PREFIXED, QUERY, SESSION, Plan
from tuner.planning.partition.solver import Partition


def test_a_plan_of_instances_is_shown_and_stored(plan: Plan) -> None:
    """By the paper's rule: a table with the chosen pool, the reasons, and the same in JSON."""
    code, out, err, stored = plan("instances", (EXAMPLES / "kairos.yaml").read_text(), "--rule", "paper")

    assert (code, err) == (0, "")
    assert "1 x g4dn.xlarge, 13 x r5n.large for 2.463 $/h" in out
    assert "331 pools" in out
    assert "→ 1" in out
    assert stored["chosen"]["counts"] == [1, 0, 13, 0]
    assert len(stored["top"]) == 20
    assert stored["why"]


@pytest.mark.compiled
def test_the_best_candidates_are_simulated(plan: Plan) -> None:
    """The plan says what was simulated, and what the chosen pool serves."""
    code, out, err, stored = plan("instances", (EXAMPLES / "kairos.yaml").read_text())

    assert (code, err) == (0, "")
    assert stored["rule"] == "simulated"
    assert stored["gain"] > 1.5
    assert stored["chosen"]["simulated"] > 110
    assert "with 1,000 requests, and the best" in out


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("kind", "example"),
    [
        *(("instances", path) for path in sorted(EXAMPLES.glob("kairos*.yaml"))),
        ("query", EXAMPLES / "query.yaml"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_examples_can_be_planned(plan: Plan, kind: str, example: Path) -> None:
    """As the documentation says."""
    code, out, err, _ = plan(kind, example.read_text())

    assert (code, err) == (0, "")
    assert kind != "query" or "more queries on each than with an even split" in out


def test_a_catalogue_may_be_a_file_beside_the_scenario(plan: Plan) -> None:
    """The plan says what was done to its figures, and stores it."""
    Path("types.yaml").write_text(CATALOGUE)

    code, out, err, stored = plan("instances", f"catalogue: types.yaml\nbudget: 2.5\n{SESSION}")

    assert (code, err) == (0, "")
    assert "note: the profile of m on cpu falls" in out
    assert "at 128 items" in stored["notes"][0]


@pytest.mark.compiled
def test_a_trace_in_whose_place_poisson_arrivals_are_simulated_is_named(plan: Plan) -> None:
    """Beside the plan and in its JSON; by the paper's rule nothing is simulated."""
    Path("times.csv").write_text("0\n1\n2\n")
    text = f"budget: 1.0\n{CATALOGUE}{SESSION.replace('model: m', 'model: m, arrival: trace:times.csv')}"

    code, out, _, stored = plan("instances", text)
    paper = plan("instances", text, "--rule", "paper")

    assert (code, paper.code) == (0, 0)
    assert "simulated under Poisson arrivals, not under the session's trace" in stored["notes"][-1]
    assert stored["notes"][-1] in out
    assert "Poisson" not in paper.out


def test_mistakes_in_a_catalogue_file_are_named_with_its_line(plan: Plan) -> None:
    """Not with the scenario's."""
    Path("types.yaml").write_text(CATALOGUE.replace("price: 0.1", "price: free"))

    code, _, err, _ = plan("instances", f"catalogue: types.yaml\nbudget: 2.5\n{SESSION}")

    assert code == 2
    assert "types.yaml line 3: catalogue[1].price" in err


def test_profiles_of_observed_servers(plan: Plan) -> None:
    """What was learned of a server takes the catalogue's place, and the plan says so."""
    window = {
        "configuration": {"max_batch_size": 64.0, "instances": 1.0},
        "profile": {"alpha": 0.0001, "beta": 0.002, "residual": 0.0, "largest": 64, "executions": 900},
        "disturbed": [],
    }
    Path("gpu.jsonl").write_text(json.dumps(window) + "\n")
    Path("learned.json").write_text(json.dumps({"gpu": {"m": "gpu.jsonl"}}))

    code, out, _, stored = plan(
        "instances", f"budget: 2.5\n{SESSION}{CATALOGUE}", "--profiles", "learned.json"
    )

    assert code == 0
    assert "m on gpu was learned: 0.1 ms per item and 2 ms per execution" in out
    assert "900 executions" in stored["notes"][0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"gpu": {"m": "none.jsonl"}}', "learned.json line 1: the file: there is no file none.jsonl"),
        (
            '{"gpo": {"m": {"alpha_ms": 1, "beta_ms": 1}}}',
            "--profiles gpo: is not in the catalogue; use gpu, cpu",
        ),
        ("{", "learned.json line 1: is not valid YAML"),
    ],
)
def test_mistakes_in_learned_profiles(plan: Plan, content: str, said: str) -> None:
    """They are reported like any other, and nothing is stored."""
    Path("learned.json").write_text(content)

    code, _, err, stored = plan(
        "instances", f"budget: 2.5\n{SESSION}{CATALOGUE}", "--profiles", "learned.json"
    )

    assert (code, stored) == (2, None)
    assert said in err


def test_the_pool_of_the_file_is_compared(plan: Plan) -> None:
    """Where the file says what runs, the plan says what a switch gains and costs."""
    code, out, _, stored = plan("instances", (EXAMPLES / "mixed.yaml").read_text(), "--rule", "paper")

    assert code == 0
    assert "To switch, start 4 x r5n.large and stop 1 x g4dn.xlarge: 60 s" in out
    assert stored["running"]["gain"] == pytest.approx(0.21, abs=0.01)
    assert stored["running"]["switch"]["stop"] == {"g4dn.xlarge": 1}


def test_a_cluster_plan_is_shown_stored_and_drawn(plan: Plan) -> None:
    """Figure 2 of Nexus; and the plan of the next epoch loads nothing."""
    code, out, err, stored = plan("cluster", CLUSTER, "--plot", "plan.png")

    assert (code, err) == (0, "")
    assert "a 64 in 8, b 32 in 4" in out
    assert "gap 0.0%" in out
    assert (stored["accelerators"], stored["lower_bound"], stored["unserved"]) == (2, 1, [])
    assert stored["backends"][0]["duty_cycle_ms"] == 125.0
    assert stored["backends"][0]["sessions"][1] == {"name": "b", "batch": 4, "rate": 32.0}
    assert stored["backends"][0]["memory_mib"] == 1000.0
    assert stored["routes"]["a"] == {"backend-0": 1.0}
    assert Path("plan.png").stat().st_size > 1000
    again = plan("cluster", f"previous: plan.json\n{CLUSTER}")
    assert (again.code, "0 models to load" in again.out) == (0, True)


def test_a_plot_shows_a_name_as_it_is_written(plan: Plan) -> None:
    """Two dollar signs in it are no mathematics."""
    code, _, err, _ = plan("cluster", CLUSTER.replace("name: a,", "name: team$a_$b,"), "--plot", "plan.svg")

    assert (code, err) == (0, "")
    assert "team$a_$b 8" in Path("plan.svg").read_text()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (
            "slo_ms: 250, rate: 32, memory_mib: 700",
            "slo_ms: 90, rate: 32, memory_mib: 700",
            "session c: no backend serves it in time",
        ),
        ("memory_mib: 700", "memory_mib: 70000", "its model needs 70000 MiB"),
    ],
)
def test_what_no_accelerator_serves_is_an_error_beside_the_plan_of_the_rest(
    plan: Plan, old: str, new: str, named: str
) -> None:
    """The feasible part is stored, the rest named there and in one error."""
    code, _, err, stored = plan("cluster", CLUSTER.replace(old, new))

    assert code == 2
    assert named in err
    assert stored["accelerators"] == 1
    assert [one["name"] for one in stored["unserved"]] == ["c"]


def test_a_file_of_which_nothing_can_be_served_is_one_error(plan: Plan) -> None:
    """The plan is empty, and stored."""
    text = "sessions: [{name: a, slo_ms: 60, rate: 9, profile_ms: {1: 40}}]\n"

    code, out, err, stored = plan("cluster", text)

    assert (code, err.count("error:"), "gap" in out, "the others" in err) == (2, 1, False, False)
    assert (stored["accelerators"], [one["name"] for one in stored["unserved"]]) == (0, ["a"])


def test_sessions_with_a_common_prefix_are_planned_in_shared_batches(plan: Plan) -> None:
    """The prefix is in memory once, and the routes name every session."""
    code, out, err, stored = plan("cluster", PREFIXED)

    assert (code, err) == (0, "")
    assert "body: cats, dogs share batches" in out
    assert stored["prefixes"] == {"body": ["cats", "dogs"]}
    assert set(stored["routes"]) == {"cats", "dogs", "other"}
    assert stored["backends"][0]["memory_mib"] in {95.0, 100.0}
    rates = [one["rate"] for each in stored["backends"] for one in each["sessions"] if one["name"] == "body"]
    assert sum(rates) == pytest.approx(400)


def test_a_session_without_requests_has_no_place_beside_those_with_its_prefix(plan: Plan) -> None:
    """Its suffix alone would take too long; the plan, which has no route for it, serves all of the others."""
    idle = "{name: dogs, prefix: body, slo_ms: 60, rate: 0, memory_mib: 3, alpha_ms: 0.1, beta_ms: 50}"
    text = "\n".join(f"  - {idle}" if "dogs" in row else row for row in PREFIXED.splitlines())

    code, _, err, stored = plan("cluster", text)

    assert (code, err, stored["unserved"]) == (0, "", [])
    assert stored["prefixes"] == {"body": ["cats"]}
    assert set(stored["routes"]) == {"cats", "other"}


def test_sessions_with_one_prefix_and_nearly_the_same_slo_are_all_planned(plan: Plan) -> None:
    """The two are planned apart, under names that tell them apart."""
    apart = PREFIXED.replace("slo_ms: 60, rate: 300", "slo_ms: 60.00001, rate: 300")

    _, _, _, stored = plan("cluster", apart)

    assert stored["prefixes"] == {"body in 60.00001 ms": ["cats"], "body in 60 ms": ["dogs"]}
    assert set(stored["routes"]) == {"cats", "dogs", "other"}


def test_sessions_that_share_batches_stay_where_they_are_when_others_share_their_prefix(plan: Plan) -> None:
    """Their name then says their SLO; one that comes with another SLO is all that is loaded."""
    birds = PREFIXED.splitlines()[-2].replace("dogs", "birds").replace("slo_ms: 60", "slo_ms: 120")
    first = plan("cluster", PREFIXED)

    more = plan("cluster", f"previous: plan.json\n{PREFIXED}{birds}\n")
    again = plan("cluster", f"previous: plan.json\n{PREFIXED}")

    assert set(more.stored["prefixes"]) == {"body in 60 ms", "body in 120 ms"}
    assert (first.stored["loaded"], more.stored["loaded"], again.stored["loaded"]) == (2, 1, 0)


def test_a_partition_is_shown_stored_and_drawn(plan: Plan) -> None:
    """The best one; and it is what the next one begins with."""
    text = f"time_limit_s: 0.2\n{PARTITION}"

    code, out, err, stored = plan("partition", text, "--plot", "p.png")

    assert (code, err) == (0, "")
    assert "3 models in 2 sub-clusters" in out
    assert "random partitions" in out
    assert (stored["imbalance"], stored["optimal"]) == (0, True)
    assert stored["assignment"]["b"] == stored["assignment"]["c"] != stored["assignment"]["a"]
    assert stored["seconds"] < 5
    assert Path("p.png").stat().st_size > 1000
    again = plan("partition", f"previous: plan.json\nmax_disruption: 0\n{text}")
    assert (again.code, again.stored["disruption"]) == (0, 0)


def test_the_first_partition_disrupts_nothing(plan: Plan) -> None:
    """`max_disruption` bounds the way from an assignment that there is (Symphony, appendix A)."""
    assert plan("partition", f"max_disruption: 0\ntime_limit_s: 0.2\n{PARTITION}").code == 0


def test_a_random_partition_that_is_better_is_the_answer(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared with what was found, and is at hand."""
    worst = Partition(assignment=np.array([0, 0, 1]), seconds=0.1, optimal=True)
    monkeypatch.setattr("tuner.planning.partition.solver.find_partition", lambda *_, **__: worst)

    _, out, _, stored = plan("partition", f"time_limit_s: 0.2\n{PARTITION}")

    assert (stored["imbalance"], stored["optimal"]) == (0, False)
    assert "the best there is" not in out


def test_the_partition_of_the_example_is_the_best_of_all(plan: Plan) -> None:
    """As found by trying all 3^9."""
    text = Path(EXAMPLES, "partition.yaml").read_text()

    _, out, _, stored = plan("partition", text)

    assert stored["optimal"]
    assert stored["imbalance"] == pytest.approx(0.01727, abs=1e-5)
    assert stored["memory_imbalance"] == pytest.approx(0.15052, abs=1e-5)
    assert "imbalance 1.73%" in out


def test_a_query_plan_is_shown_stored_and_drawn(plan: Plan) -> None:
    """A table, the same in JSON, and a picture."""
    code, out, err, stored = plan("query", QUERY, "--plot", "plan.png")

    assert (code, err) == (0, "")
    assert "0.75 accelerators" in out
    assert stored["accelerators"] == pytest.approx(0.75)
    assert stored["even_split"] == pytest.approx(0.75)
    assert [stage["name"] for stage in stored["stages"]] == ["detect", "recognise"]
    assert [stage["batch"] for stage in stored["stages"]] == [8, 8]
    assert sum(stage["budget_ms"] for stage in stored["stages"]) == pytest.approx(400)
    assert Path("plan.png").read_bytes().startswith(b"\x89PNG")


def test_the_split_of_whole_accelerators_is_simulated(plan: Plan) -> None:
    """What they serve is printed and stored, beside what two other splits serve."""
    code, out, _, stored = plan("query", QUERY, "--accelerators", "2")

    assert code == 0
    simulated = stored["simulated"]
    assert simulated["accelerators"] == 2
    assert simulated["rate"] >= max(simulated["planned_rate"], simulated["even_rate"])
    assert f"2 accelerators serve {simulated['rate']:.4g} queries/s" in out
    assert sum(stage["budget_ms"] for stage in stored["stages"]) <= 400.001
    assert stored["stages"][0]["rate"] == simulated["rate"]
    assert f"2 stages within 400 ms at {simulated['rate']:g} queries/s" in out


def test_the_split_of_whole_accelerators_is_planned_at_the_rate_that_they_serve(plan: Plan) -> None:
    """At the file's rate its smallest batch takes longer to gather than the budget that was found."""
    query = """slo_ms: 450
rate: 20
worst_case: true
stages:
  - {name: a, profile_ms: {8: 30, 16: 45}, next: [{stage: b}]}
  - {name: b, alpha_ms: 1, beta_ms: 5}
"""

    code, _, err, stored = plan("query", query, "--accelerators", "8")

    assert (code, err) == (0, "")
    assert stored["stages"][0]["budget_ms"] < 430
    assert stored["stages"][0]["rate"] == stored["simulated"]["rate"] > 20


def test_accelerators_that_serve_no_query_in_time(plan: Plan) -> None:
    """They serve 0 queries/s; the split is that of the file's rate."""
    query = QUERY.replace("1: 8, 8: 30", "1: 199, 8: 1990").replace("1: 5, 8: 20", "1: 199, 8: 1990")

    code, out, _, stored = plan("query", query, "--accelerators", "1")

    assert (code, stored["simulated"]["rate"]) == (0, 0)
    assert "1 accelerators serve 0 queries/s" in out
    assert stored["stages"][0]["rate"] == 100


@pytest.mark.parametrize(("kind", "text"), [("cluster", CLUSTER), ("partition", PARTITION), ("query", QUERY)])
def test_a_plot_is_a_picture(plan: Plan, kind: str, text: str) -> None:
    """Another ending is refused before anything is planned."""
    code, _, err, stored = plan(kind, text, "--plot", "plan.txt")

    assert (code, stored) == (2, None)
    assert "--plot: plan.txt is no picture; let its name end in .png" in err
