"""The agent to start from, and the plan of a pool: a file that is written anew is another setting."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import OBJECTIVE, SPACE
from tests.control.daemon.daemon_bed import Bed, Running
from tests.control.daemon.file_server import FileServer
from tests.waiting import eventually
from tuner.agents.agent import State
from tuner.agents.rrl import RRL
from tuner.control.daemon.config import DaemonConfig
from tuner.control.store.store import Store
from tuner.errors import InvalidInput
from tuner.files.yaml_file import load_yaml
from tuner.knobs import KnobSpace
from tuner.objective import Objective


def train(folder: Path, cost: float, objective: Objective | None = None) -> None:
    """Write an agent that has learned a cost."""
    agent = RRL(SPACE, objective=objective, synchronous=True)
    state = State(level=5, configuration=0)
    agent.update(state, 0, cost, state)
    agent.save(folder)


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders from which agents begin, one after the other."""
    found: list[Path] = []
    load: Callable[..., RRL] = RRL.load

    def note(folder: Path, *arguments: Any, **options: Any) -> RRL:
        found.append(folder)
        return load(folder, *arguments, **options)

    monkeypatch.setattr(RRL, "load", note)
    return found


def test_a_target_starts_once_from_the_agent_in_the_file(bed: Bed, begins: list[Path]) -> None:
    """Also one that had an agent before; then it goes on with its own, until there is another in the file."""
    policy, more = bed.folder / "learned", "policy: learned"
    bed.write(("a", "recommend", ""))
    bed.run(windows=2)
    train(policy, 0.5)
    for settings in (more, more, "", more):
        bed.write(("a", "recommend", settings))
        bed.run(windows=2)
    train(policy, 0.7)
    bed.run(windows=2)

    assert [folder == policy for folder in begins] == [True, False, False, False, True]
    said = [sentence for sentence in bed.said if "is not what the stored agent began from" in sentence]
    assert said == [f"a: {policy} is not what the stored agent began from; a new one begins from that"] * 2


def test_an_agent_of_an_older_store_goes_on(bed: Bed, begins: list[Path]) -> None:
    """Which does not say what it began from."""
    train(bed.folder / "learned", 0.5)
    bed.write(("a", "recommend", "policy: learned"))
    bed.run(windows=2)
    with closing(Store(bed.folder / "s.db")) as store, store.writing() as db:
        db.execute("UPDATE policy SET origin = NULL")
    train(bed.folder / "learned", 0.7)
    bed.run(windows=2)

    assert [folder == bed.folder / "learned" for folder in begins] == [True, False]


def test_a_target_is_started_again_when_its_agent_was_trained_anew(bed: Bed, begins: list[Path]) -> None:
    """As SIGHUP finds it; with the same agent it goes on undisturbed."""
    policy = bed.folder / "learned"
    train(policy, 0.5)
    bed.write(("a", "recommend", "policy: learned"))
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["a"].turns)
        for started in ("none", "a"):
            if started == "a":
                train(policy, 0.7)
            keeper.reload()
            reloaded = f": the file was reloaded; started: {started}; stopped: none"
            eventually(partial(bed.said.__contains__, reloaded))
        eventually(lambda: keeper.workers["a"].turns)

    assert begins == [policy] * 2


OTHERS = {
    "{policy: learned, slo: p95=20ms}": "was learned for the least p95 latency with p95 <= 30ms, not for the",
    "{policy: learned, objective: strict}": "was learned for the least p95 latency with p95 <= 30ms, not for",
    "{policy: learned, change_cost: 1}": "not for the least p95 latency .*, changes at 1 times",
    "{policy: learned, knobs: {max_batch_size: [1, 2]}}": "max_batch_size: the grid is 1,2 but was 1,2,4,8",
    "{policy: learned, knobs: {max_queue_delay: {least: 1ms}}}": "grid is 2ms,10ms but was 0ms,2ms,10ms",
    "{policy: learned, knobs: {instances: {least: 7}}}": "instances: the grid is empty but was 1,2",
    "{policy: learned, knobs: {speed: {least: 7}}}": "speed: not among what was learned: max_batch_size",
}


def test_a_target_with_another_grid_says_what_differs(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stored agent was learned with other values: which knob, both grids, and what happens now."""
    batch, *others = SPACE.knobs
    bed.write(("a", "recommend", ""))
    bed.run(windows=3)
    monkeypatch.setattr(FileServer, "space", KnobSpace([replace(batch, grid=(1, 4, 16)), *others]))

    bed.run(windows=1)

    assert [sentence for sentence in bed.said if "stored agent" in sentence] == [
        "a: the stored agent cannot be used: knob max_batch_size: the grid is 1,4,16 but was 1,2,4,8,16 in "
        "learning; a new one begins, with the stored windows that have the present knobs"
    ]


@pytest.mark.parametrize("settings", OTHERS)
def test_an_agent_for_something_else_is_a_mistake_in_the_file(tmp_path: Path, settings: str) -> None:
    """The daemon keeps what it has; it would start no agent. Who only observes has none."""
    train(tmp_path / "learned", 0.5, OBJECTIVE)
    path = tmp_path / "servetune.yaml"
    given = {"name": "a", "url": "sim://mlp", "slo": "p95=30ms"} | yaml.safe_load(settings)

    path.write_text(yaml.safe_dump({"targets": [given | {"mode": "observe"}]}))
    load_yaml(path, DaemonConfig)
    path.write_text(yaml.safe_dump({"targets": [given]}))

    with pytest.raises(InvalidInput, match=rf"targets\[0\]\.policy: .*{OTHERS[settings]}"):
        load_yaml(path, DaemonConfig)


def test_an_agent_for_what_the_file_says(tmp_path: Path) -> None:
    """Also if it names grids: they are those of the agent."""
    train(tmp_path / "learned", 0.5, OBJECTIVE)
    path = tmp_path / "servetune.yaml"
    knobs = "{max_batch_size: [1, 2, 4, 8, 16], instances: {least: 1}}"
    path.write_text(
        f"targets: [{{name: a, url: 'sim://mlp', slo: p95=30ms, knobs: {knobs}, policy: learned}}]"
    )

    assert load_yaml(path, DaemonConfig).targets[0].policy == tmp_path / "learned"


def test_a_plan_that_is_written_anew_is_another_setting(tmp_path: Path) -> None:
    """Its target is started again, for its advice would be about another pool."""
    plan, path = tmp_path / "plan.yaml", tmp_path / "servetune.yaml"
    path.write_text("targets: [{name: a, url: 'dispatch://h:9102', slo: p95=30ms, plan: plan.yaml}]")
    found = []
    for count in (13, 13, 14):
        plan.write_text(
            "{catalogue: paper, budget: 2.5, "
            "sessions: [{name: recommend, model: rm2, slo_ms: 350, sizes: paper}], "
            f"instances: [{{type: g4dn.xlarge, count: 1}}, {{type: r5n.large, count: {count}}}]}}"
        )
        found.append(load_yaml(path, DaemonConfig).targets)

    assert found[0] == found[1]
    assert found[1] != found[2]
