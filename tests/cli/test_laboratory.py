"""Commands of the learning laboratory: train, evaluate, compare."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn, get_type_hints

import pytest

from tests.command_line import Say
from tests.laboratory.agent_runs import SMALL as SMALL_RUN
from tuner.cli import main
from tuner.cli.comparison import compare_runs
from tuner.cli.output import RunFiles
from tuner.cli.recommend import with_what_runs
from tuner.envs.simulator.backend import triton_space
from tuner.envs.simulator.server import ServerModel
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, Grids
from tuner.laboratory.agent_run import AgentRun, RunSpec, run_agent
from tuner.laboratory.comparison import Comparison

SMALL = ("--env", "tuner/TritonCPU-v0", "--rate", "100", "--window", "500ms")
GRID = ("--knob", "max_batch_size=1,4,16", "--knob", "max_queue_delay=0")


@pytest.mark.usefixtures("one_core")
@pytest.mark.compiled
def test_comparisons_are_stored_and_drawn(tuner: Say, tmp_path: Path) -> None:
    """A row for each agent, also for the same one with other parameters."""
    tuner(
        "compare", *SMALL, *GRID, "--agents", "rrl,rrl:smoothing.adaptive=false,capes:hidden=[10,10]",
        "--windows", "12", "--seeds", "2",
        "--json", "c.json", "--plot", "figures", "--plot-format", "svg",
        "--csv", "windows.csv",
    )  # fmt: skip

    found = Comparison.load(tmp_path / "c.json")
    assert [row.id for row in found.rows] == [
        "rrl",
        "rrl:smoothing.adaptive=False",
        "capes:hidden=[10, 10]",
    ]
    assert all(row.seeds == 2 and row.mean_cost > 0 for row in found.rows)  # type: ignore[operator]
    assert (found.rates, found.arguments["window"]) == ([100.0], 0.5)
    assert [(run.id, run.seed) for run in found.runs[::3]] == [("rrl", 0), ("rrl", 1)]
    assert len((tmp_path / "windows.csv").read_text().splitlines()) == 1 + 3 * 2 * 12
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"comparison-cost.svg", "comparison-ccdf.svg", "comparison-slo.svg"} <= drawn


@pytest.mark.usefixtures("one_core")
def test_policies_are_evaluated_beside_the_oracle_and_the_start(tuner: Say, tmp_path: Path) -> None:
    """What was learned costs less than the default where that is overloaded, not less than the best."""
    small = ("--env", "tuner/TritonCPU-v0", "--rate", "250", "--window", "500ms", *GRID)
    tuner("train", *small, "--windows", "12", "--out", "policy", "--tensorboard", "logs")

    tuner("evaluate", "policy", *small, "--windows", "5", "--seeds", "1", "--json", "e.json")

    rows = {row.id: row for row in Comparison.load(tmp_path / "e.json").rows}
    assert rows["policy"].mean_cost < 0.5 * rows["start"].mean_cost  # type: ignore[operator]
    assert rows["oracle"].regret == 0
    assert rows["policy"].regret >= 0  # type: ignore[operator]
    assert list((tmp_path / "logs" / "seed-0").iterdir())


def loses_its_trace(spec: RunSpec) -> AgentRun:
    """A run at whose end the file of its workload has gone."""
    done = run_agent(spec)
    Path("trace.csv").unlink()
    return done


def test_windows_are_stored_whatever_became_of_the_files_that_were_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Runs take hours; none of them is lost for a trace that somebody moves meanwhile."""
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text("0\n1\n3\n")
    base = RunSpec(**SMALL_RUN | {"workload": "trace:trace.csv", "windows": 2}, agent="random", exact=False)

    compare_runs(loses_its_trace, [base], base, seeds=1, files=RunFiles(table=Path("windows.csv")))

    assert Path("windows.csv").read_text().count("\n") == 1 + 2


def test_a_policy_for_other_knobs_is_refused(tuner: Say, fails: Say) -> None:
    """The message says which knob differs and how."""
    tuner("train", *SMALL, *GRID, "--windows", "2", "--out", "policy")

    assert "knob max_batch_size: the grid is" in fails("evaluate", "policy", *SMALL, *GRID[2:])


@pytest.mark.parametrize("agent", ["rrl", "hill_climb"])
def test_a_policy_for_another_objective_is_refused(tuner: Say, fails: Say, agent: str) -> None:
    """Costs are ratios to the SLO they were learned for: under another one they would mislead.

    The message names the folder, which each command takes under another name.
    """
    tuner("train", *SMALL, *GRID, "--agent", agent, "--windows", "2", "--out", "policy")
    words = "error: policy policy: was learned for the least p95 latency with p95 <= 30ms, not for the least"

    assert words in fails("evaluate", "policy", *SMALL, *GRID, "--slo", "p95=10ms")
    other = ("--slo", "p95=30ms", "--objective", "cpu", "--policy", "policy")
    assert words in fails("train", *SMALL, *GRID, *other, "--windows", "2", "--out", "again")
    if agent == "rrl":  # no other one tunes a server
        assert words in fails("run", "sim://mlp?rate=100", *GRID, *other, "--windows", "1", "--out", "run")
    assert words in fails("recommend", "sim://mlp?rate=100", *GRID, *other)


def test_a_policy_that_was_trained_with_a_cost_of_changes_is_recommended_by(tuner: Say, fails: Say) -> None:
    """It is for that cost, which each command that takes a policy can be given."""
    tuner("train", *SMALL, *GRID, "--change-cost", "1", "--windows", "2", "--out", "policy")
    recommend = ("recommend", "sim://mlp?rate=100", *GRID, "--slo", "p95=30ms", "--policy", "policy")

    assert "changes at 1 times their cost" in tuner(*recommend, "--change-cost", "1", "--windows", "1")
    assert "changes at 1 times their cost, not for" in fails(*recommend)


@pytest.mark.slow
def test_seeds_are_trained_side_by_side(tuner: Say, tmp_path: Path) -> None:
    """In processes; each has a folder of its own, and is the training that its seed alone gives."""
    tuner("train", *SMALL, *GRID, "--windows", "6", "--seeds", "2", "--out", "both")
    tuner("train", *SMALL, *GRID, "--windows", "6", "--seed", "1", "--out", "alone")

    for name in ("policy.json", "journal.jsonl"):
        assert (tmp_path / "both" / "seed-1" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    assert (tmp_path / "both" / "seed-0" / "policy.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["rrl", "hill_climb"])
def test_killed_training_ends_as_if_it_had_not_been(tuner: Say, tmp_path: Path, agent: str) -> None:
    """`kill -9` in the midst, then the same command again: the same files to the last bit."""

    train = ["train", *SMALL, "--agent", agent, "--windows", "150", "--out"]
    tuner(*train, "whole")
    command = [sys.executable, "-m", "tuner", *train, "parts"]
    killed = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    journal = tmp_path / "parts" / "journal.jsonl"
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 40):
        assert killed.poll() is None
        time.sleep(0.002)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "parts" / "policy.json").exists()
    tuner(*train, "parts")

    def contents(folder: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}

    assert contents("parts") == contents("whole")
    assert json.loads(contents("whole")["policy.json"])["agent"] == agent


def test_training_says_in_words_what_it_did_not_learn(tuner: Say) -> None:
    """Of a nominal load that no window had, and where nothing was asked at all."""
    small = (*SMALL[:2], *GRID, "--window", "500ms")
    beside = tuner(
        "train", *small, "--rate", "150", "--workload", "step:low=0.5,high=2", "--agent", "random",
        "--windows", "2", "--out", "a",
    )  # fmt: skip
    nothing = tuner("train", *small, "--rate", "0.1", "--windows", "1", "--out", "b")

    assert "its cost was learned under other loads only" in beside
    assert "nothing was learned" in nothing
    assert "nan" not in beside + nothing


def test_training_says_what_it_learned_of_each_load(tuner: Say) -> None:
    """Also of one whose windows fell into the level beside its own, and of two that share a level."""
    small = (*SMALL[:2], *GRID, "--window", "500ms", "--agent", "random", "--windows", "2")
    beside = tuner("train", *small, "--rate", "150", "--out", "a")
    both = tuner("train", *small, "--rate", "300", "--rate", "310", "--out", "b")

    assert re.findall(r"(\d+) requests/s: .* learned cost", beside) == ["150"]
    assert re.findall(r"(\d+) requests/s: .* learned cost", both) == ["300", "310"]


def test_help_names_every_agent_environment_and_workload() -> None:
    """What the options list is what there is; it is written out so that `--help` need not import it."""
    from tuner.agents.catalogue import AGENTS
    from tuner.cli import agent_options
    from tuner.laboratory.environment import environments
    from tuner.option import options_of
    from tuner.setting import Load
    from tuner.workload import WORKLOADS

    env = get_type_hints(agent_options.AgentOptions, include_extras=True)["env"].__metadata__[0]
    assert re.findall(r"\w+", agent_options.AGENT_HELP.split("Names:")[1]) == list(AGENTS)
    assert sorted(re.findall(r"tuner/\S+v0", env.help)) == environments()
    assert set(WORKLOADS) <= set(re.findall(r"\w+", options_of(Load)["workload"].help))


def test_ctrl_c_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The journal keeps what was done; the exit code is that of Ctrl-C."""

    def interrupted(tasks: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("tuner.cli.train._run", interrupted)
    monkeypatch.setattr(sys, "argv", ["tuner", "train", *SMALL, *GRID, "--out", str(tmp_path / "policy")])

    with pytest.raises(SystemExit) as ending:
        main()

    assert ending.value.code == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_training_starts_from_a_policy(tuner: Say, fails: Say, tmp_path: Path) -> None:
    """It goes to what was learned at once; it ends the same when asked again, and not from another policy."""
    small = ("--env", "tuner/TritonCPU-v0", "--rate", "250", "--window", "500ms", *GRID)
    tuner("train", *small, "--windows", "14", "--agent", "rrl:carry=false", "--out", "first")
    tuner("train", *small, "--windows", "3", "--policy", "first", "--out", "second")
    tuner("train", *small, "--windows", "3", "--agent", "rrl:prior=none", "--out", "cold")

    def costs(folder: str) -> list[float]:
        lines = (tmp_path / folder / "journal.jsonl").read_text().splitlines()
        return [json.loads(line)["cost"] for line in lines if '"window": ' in line and "spec" not in line]

    assert max(costs("second")) < 0.5 * costs("cold")[0]
    stored = json.loads((tmp_path / "second" / "policy.json").read_text())
    assert stored["parameters"]["carry"] is False
    assert "went on after 3 windows" in tuner(
        "train", *small, "--windows", "3", "--policy", "first", "--out", "second"
    )
    again = ("train", *small, "--windows", "3", "--policy", "cold", "--out")
    assert "policy_sha256 is" in fails(*again, "second")
    assert "is the policy to start from" in fails(*again, "cold")
    assert "brings its own, 'rrl'" in fails(*again, "third", "--agent", "rrl")
    assert "knob max_batch_size: the grid is" in fails("train", *SMALL, "--policy", "cold", "--out", "third")


def test_what_runs_joins_the_grids_of_a_recommendation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared as itself; a value that the server could not be set to stays outside."""

    class Server:
        def __init__(self, grids: Grids) -> None:
            if 99.0 in grids["max_batch_size"]:
                raise InvalidInput("knob max_batch_size", "99 is not between 1 and 64")
            self.space = triton_space(ServerModel(table={1: 0.005}, cores=2.0, name="m"), grids)

        def current(self) -> Configuration:
            return Configuration(max_batch_size=runs, max_queue_delay=0.0, instances=1)

        def close(self) -> None: ...

    monkeypatch.setattr("tuner.adapters.connect", lambda _, grids: Server(grids))
    given: Grids = {"max_batch_size": (1.0, 4.0), "max_in_flight": (8.0,)}

    runs = 32.0
    assert with_what_runs(given, "x") == {**given, "max_batch_size": (1.0, 4.0, 32.0)}
    runs = 4.0
    assert with_what_runs(given, "x") == given
    runs = 99.0
    assert with_what_runs(given, "x") == given


@pytest.mark.parametrize(
    "command",
    [
        ("compare", *SMALL, "--agents", "random"),
        ("experiment", "run", "kairos-fig1"),
        ("workload", "show", "ramp"),
    ],
    ids=lambda command: command[0],
)
def test_figures_that_cannot_be_drawn_are_refused_before_anything_runs(
    fails: Say, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Where what draws is not installed: what was measured would have been for nothing."""
    monkeypatch.setattr("tuner.plugin.find_spec", lambda _: None)

    said = fails(*command, "--plot", "a.svg")

    assert said.startswith("error: --plot: needs matplotlib, which is not installed; in a clone: pipx")
    assert not Path("a.svg").exists()


@pytest.mark.parametrize(
    "command",
    [("compare", *SMALL, "--agents", "random"), ("experiment", "run", "kairos-fig1")],
    ids=lambda command: command[0],
)
def test_a_form_of_figures_that_are_not_drawn_is_refused(fails: Say, command: tuple[str, ...]) -> None:
    """It was ignored, and the figures of a long run were missing at its end."""
    said = fails(*command, "--plot-format", "svg")

    assert said == "error: --plot-format: is that of figures, and none are drawn; give --plot DIR, too\n"
