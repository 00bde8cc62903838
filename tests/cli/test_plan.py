"""``tuner plan instances``: what it prints, stores and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Ended, Run

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SESSION = "sessions: [{name: s, model: m, slo_ms: 40, sizes: 'gaussian:100,20'}]\n"
CATALOGUE = """catalogue:
  - {name: gpu, price: 1.0, max_count: 3, profile: {m: {alpha_ms: 0.01, beta_ms: 5}}}
  - {name: cpu, price: 0.1, max_count: 9, profile: {m: {1: 1, 64: 20, 128: 19, 256: 80}}}
"""


@pytest.fixture
def plan(run: Run) -> Run:
    """Plan a file in an empty folder."""

    def call(text: str, *arguments: str) -> Ended:
        Path("k.yaml").write_text(text)
        return run("plan", "instances", "k.yaml", *arguments)

    return call


def test_the_plan_is_shown_and_stored(plan: Run) -> None:
    """By the paper's rule: a table with the chosen pool, the reasons, and the same in JSON."""
    code, out, err = plan((EXAMPLES / "kairos.yaml").read_text(), "--rule", "paper", "--json", "plan.json")

    stored = json.loads(Path("plan.json").read_text())
    assert (code, err) == (0, "")
    assert "1 x g4dn.xlarge, 13 x r5n.large for 2.463 $/h" in out
    assert "331 pools" in out
    assert "→ 1" in out
    assert stored["chosen"]["counts"] == [1, 0, 13, 0]
    assert len(stored["top"]) == 20
    assert stored["why"]


@pytest.mark.compiled
def test_the_best_candidates_are_simulated(plan: Run) -> None:
    """The plan says what was simulated, and what the chosen pool serves."""
    code, out, err = plan((EXAMPLES / "kairos.yaml").read_text(), "--json", "plan.json")

    stored = json.loads(Path("plan.json").read_text())
    assert (code, err) == (0, "")
    assert stored["rule"] == "simulated"
    assert stored["gain"] > 1.5
    assert stored["chosen"]["simulated"] > 110
    assert "with 1,000 requests, and the best" in " ".join(out.split())


@pytest.mark.compiled
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("kairos*.yaml")), ids=lambda path: path.name)
def test_the_examples_can_be_planned(plan: Run, example: Path) -> None:
    """As the documentation says."""
    code, _, err = plan(example.read_text())

    assert (code, err) == (0, "")


def test_a_catalogue_may_be_a_file_beside_the_scenario(plan: Run) -> None:
    """The plan says what was done to its figures, and stores it."""
    Path("types.yaml").write_text(CATALOGUE)

    code, out, err = plan(f"catalogue: types.yaml\nbudget: 2.5\n{SESSION}", "--json", "plan.json")

    assert (code, err) == (0, "")
    assert "note: the profile of m on cpu falls" in out
    assert "at 128 items" in json.loads(Path("plan.json").read_text())["notes"][0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"{CATALOGUE}{SESSION}", "budget: is missing"),
        (
            f"budget: 0.2\n{CATALOGUE}{SESSION.replace('40', '15')}",
            "0.2 $/h buys no instance that meets slo_ms",
        ),
        (
            f"budget: 2\n{CATALOGUE}{SESSION.replace('100,20', '300,20')}",
            "profile of m on cpu: holds 1 to 256",
        ),
        (f"budget: 2\n{CATALOGUE}{SESSION.replace('40', '3')}", "gpu needs"),
        (
            f"budget: 2\n{CATALOGUE.replace('price: ', 'price: -')}{SESSION}",
            "catalogue[0].price: must be greater than 0",
        ),
        (
            f"budget: 2\ncatalogue: none.yaml\n{SESSION}",
            "k.yaml line 2: catalogue: there is no file none.yaml",
        ),
        (f"budget: 2\n{CATALOGUE}{SESSION.replace('gaussian', 'gauss')}", "gauss:100,20"),
        (f"budgets: 2\n{CATALOGUE}{SESSION}", "did you mean 'budget'?"),
        (f"budget: 2\n{CATALOGUE}{SESSION.replace('model: m', 'model: n')}", "use m"),
    ],
)
def test_mistakes_are_named(plan: Run, text: str, names: str) -> None:
    """Exit code 2, one error, and nothing is written."""
    code, out, err = plan(text, "--json", "plan.json")

    assert code == 2
    assert names in err
    assert out == ""
    assert not Path("plan.json").exists()


def test_mistakes_in_a_catalogue_file_are_told_with_its_line(plan: Run) -> None:
    """Not with the scenario's."""
    Path("types.yaml").write_text(CATALOGUE.replace("price: 0.1", "price: free"))

    code, _, err = plan(f"catalogue: types.yaml\nbudget: 2.5\n{SESSION}")

    assert code == 2
    assert "types.yaml line 3: catalogue[1].price" in err


def test_profiles_of_observed_servers(plan: Run) -> None:
    """What was learned of a server takes the catalogue's place, and the plan says so."""
    window = {
        "configuration": {"max_batch_size": 64.0, "instances": 1.0},
        "profile": {"alpha": 0.0001, "beta": 0.002, "residual": 0.0, "largest": 64, "executions": 900},
        "disturbed": [],
    }
    Path("gpu.jsonl").write_text(json.dumps(window) + "\n")
    Path("learned.json").write_text(json.dumps({"gpu": {"m": "gpu.jsonl"}}))

    code, out, _ = plan(
        f"budget: 2.5\n{SESSION}{CATALOGUE}", "--profiles", "learned.json", "--json", "plan.json"
    )

    assert code == 0
    assert "m on gpu was learned: 0.1 ms per item and 2 ms per execution" in " ".join(out.split())
    assert "900 executions" in json.loads(Path("plan.json").read_text())["notes"][0]


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
def test_mistakes_in_learned_profiles(plan: Run, content: str, said: str) -> None:
    """They are reported like any other, and nothing is stored."""
    Path("learned.json").write_text(content)

    code, _, err = plan(
        f"budget: 2.5\n{SESSION}{CATALOGUE}", "--profiles", "learned.json", "--json", "plan.json"
    )

    assert code == 2
    assert said in " ".join(err.split())
    assert not Path("plan.json").exists()


def test_the_pool_of_the_file_is_compared(plan: Run) -> None:
    """Where the file says what runs, the plan says what a switch gains and costs."""
    code, out, _ = plan((EXAMPLES / "mixed.yaml").read_text(), "--rule", "paper", "--json", "plan.json")

    running = json.loads(Path("plan.json").read_text())["running"]
    assert code == 0
    assert "To switch, start 4 x r5n.large and stop 1 x g4dn.xlarge: 60 s" in " ".join(out.split())
    assert running["gain"] == pytest.approx(0.21, abs=0.01)
    assert running["switch"]["stop"] == {"g4dn.xlarge": 1}


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


@pytest.fixture
def plan_cluster(run: Run) -> Run:
    """Pack the sessions of a file in an empty folder."""

    def call(text: str, *arguments: str) -> Ended:
        Path("c.yaml").write_text(text)
        return run("plan", "cluster", "c.yaml", *arguments)

    return call


def test_a_cluster_plan_is_shown_stored_and_drawn(plan_cluster: Run) -> None:
    """Figure 2 of Nexus; and the plan of the next epoch loads nothing."""
    code, out, err = plan_cluster(CLUSTER, "--json", "plan.json", "--plot", "plan.png")

    stored = json.loads(Path("plan.json").read_text())
    assert (code, err) == (0, "")
    assert "a 64 in 8, b 32 in 4" in out
    assert "gap 0.0%" in out
    assert (stored["accelerators"], stored["lower_bound"], stored["unserved"]) == (2, 1, [])
    assert stored["backends"][0]["duty_cycle_ms"] == 125.0
    assert stored["backends"][0]["sessions"][1] == {"name": "b", "batch": 4, "rate": 32.0}
    assert stored["backends"][0]["memory_mib"] == 1000.0
    assert stored["routes"]["a"] == {"backend-0": 1.0}
    assert Path("plan.png").stat().st_size > 1000
    code, out, _ = plan_cluster(f"previous: plan.json\n{CLUSTER}")
    assert (code, "0 models to load" in out) == (0, True)


def test_what_no_accelerator_serves_is_an_error_beside_the_plan_of_the_rest(plan_cluster: Run) -> None:
    """The feasible part is stored, the rest named there and in one error."""
    text = CLUSTER.replace("slo_ms: 250, rate: 32, memory_mib: 700", "slo_ms: 90, rate: 32, memory_mib: 700")

    code, _, err = plan_cluster(text, "--json", "plan.json")

    stored = json.loads(Path("plan.json").read_text())
    assert code == 2
    assert "session c: no backend serves it in time" in err
    assert stored["accelerators"] == 1
    assert [one["name"] for one in stored["unserved"]] == ["c"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (CLUSTER.replace("memory_mib: 700", "memory_mib: 70000"), "its model needs 70000 MiB"),
        (CLUSTER.replace("rate: 64", "rate: -1"), "line 3: sessions[0].rate"),
        (CLUSTER.replace("name: b", "name: a"), "is the name of several"),
        (CLUSTER.replace("profile_ms: {4: 50, 8: 90, 16: 125}", "alpha_ms: 1"), "needs one profile"),
        ("sessions: []\n", "needs at least one"),
        (f"previous: none.json\n{CLUSTER}", "there is no file none.json"),
        (
            CLUSTER.replace("name: b,", "name: b, prefix: body,"),
            "has the prefix body, which is not in prefixes",
        ),
        (PREFIXED.replace("name: other", "name: body"), "is the name of a prefix and of a session"),
        (f"previous: c.yaml\n{CLUSTER}", "is no plan"),
    ],
)
def test_mistakes_in_a_cluster_are_named(plan_cluster: Run, text: str, names: str) -> None:
    """One clear error and exit code 2."""
    code, _, err = plan_cluster(text)

    assert code == 2
    assert names in err.replace("\n", " ")


def test_sessions_with_a_common_prefix_are_planned_in_shared_batches(plan_cluster: Run) -> None:
    """The prefix is in memory once, and the routes name every session."""
    code, out, err = plan_cluster(PREFIXED, "--json", "plan.json")

    stored = json.loads(Path("plan.json").read_text())
    assert (code, err) == (0, "")
    assert "body: cats, dogs share batches" in out
    assert stored["prefixes"] == {"body": ["cats", "dogs"]}
    assert set(stored["routes"]) == {"cats", "dogs", "other"}
    assert stored["backends"][0]["memory_mib"] in {95.0, 100.0}
    rates = [one["rate"] for each in stored["backends"] for one in each["sessions"] if one["name"] == "body"]
    assert sum(rates) == pytest.approx(400)


PARTITION = """partitions: 2
memory_mib: 1000
models:
  - {name: a, rate: 300, memory_mib: 600}
  - {name: b, rate: 100, memory_mib: 200}
  - {name: c, rate: 200, memory_mib: 400}
"""


@pytest.fixture
def plan_partition(run: Run) -> Run:
    """Divide the models of a file in an empty folder."""

    def call(text: str, *arguments: str) -> Ended:
        Path("p.yaml").write_text(text)
        return run("plan", "partition", "p.yaml", *arguments)

    return call


def test_a_partition_is_shown_stored_and_drawn(plan_partition: Run) -> None:
    """The best one; and it is what the next one begins with."""
    code, out, err = plan_partition(f"time_limit_s: 0.2\n{PARTITION}", "--json", "p.json", "--plot", "p.png")

    stored = json.loads(Path("p.json").read_text())
    assert (code, err) == (0, "")
    assert "3 models in 2 sub-clusters" in out
    assert "random partitions" in out
    assert (stored["imbalance"], stored["optimal"]) == (0, True)
    assert stored["assignment"]["b"] == stored["assignment"]["c"] != stored["assignment"]["a"]
    assert stored["seconds"] < 5
    assert Path("p.png").stat().st_size > 1000
    code, _, _ = plan_partition(
        f"time_limit_s: 0.2\nprevious: p.json\nmax_disruption: 0\n{PARTITION}", "--json", "q.json"
    )
    assert (code, json.loads(Path("q.json").read_text())["disruption"]) == (0, 0)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (PARTITION.replace("600", "6000"), "a needs 6000 MiB, more than memory_mib"),
        (PARTITION.replace("600", "900").replace("400", "950"), "the models need 2,050 MiB"),
        (f"max_rate: 200\n{PARTITION}", "a has 300 requests/s, more than max_rate"),
        (f"max_disruption: 1\nprevious: {{a: 0, b: 0, c: 0}}\n{PARTITION}", "the least disruption is 2"),
        (f"previous: {{a: 7}}\n{PARTITION}", "a was in sub-cluster 7"),
        (PARTITION.replace("name: b", "name: a"), "is the name of 2 models"),
    ],
)
def test_mistakes_in_a_partition_are_named(plan_partition: Run, text: str, names: str) -> None:
    """One clear error and exit code 2."""
    code, _, err = plan_partition(text)

    assert code == 2
    assert names in err.replace("\n", " ")


def test_a_log_is_replayed(run: Run) -> None:
    """Rounds are shown and stored; a broken line and an unknown model end it."""
    models, log = EXAMPLES / "replay-models.yaml", EXAMPLES / "replay.csv"
    options = ("--models", str(models), "--accelerators", "2")

    code, out, err = run("plan", "replay", str(log), *options, "--json", "r.json")

    stored = json.loads(Path("r.json").read_text())
    assert (code, err) == (0, "")
    assert "3 rounds" in out
    assert [one["jobs"] for one in stored["rounds"]] == [3, 2, 2]
    assert stored["rounds"][0]["bad_rate"] == 0
    assert stored["unserved"] == []
    Path("b.csv").write_text("1, a, 200, 64, 0\n2, a, 200\n")
    assert "b.csv line 2" in run("plan", "replay", "b.csv", *options)[2]
    Path("u.csv").write_text("1, z, 200, 64, 0\n2, a, 20, 64, 0\n")
    code, _, err = run("plan", "replay", "u.csv", *options)
    assert (code, "job 1 is of z" in err) == (2, True)
