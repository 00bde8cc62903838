"""Advice on the pool behind a dispatcher: from the sizes and rates that it sees, and never carried out."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.control.daemon.daemon_bed import Bed
from tuner.adapters.traffic import SessionTraffic, Traffic
from tuner.control.daemon.config import DaemonConfig
from tuner.control.daemon.pool_advice import LEAST_PAUSE, PoolAdvisor
from tuner.control.daemon.worker import Worker
from tuner.control.store.history import events as list_events
from tuner.control.store.store import Store
from tuner.errors import InvalidInput
from tuner.files.yaml_file import load_yaml
from tuner.workload.sizes import gaussian_sizes, paper_sizes

PLAN = """
catalogue: paper
budget: 2.5
sessions: [{name: recommend, model: rm2, slo_ms: 350, sizes: paper}]
instances: [{type: g4dn.xlarge, count: 1}, {type: r5n.large, count: 13}]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


def window(number: int, rate: float, sizes: Any = None, seconds: float = LEAST_PAUSE) -> Traffic:
    """The n-th window of a dispatcher with a session that has sizes, and one that nobody plans for."""
    rng = np.random.default_rng(number)
    drawn = (sizes or paper_sizes()).sample(rng, int(rate * seconds))
    fields: dict[str, Any] = {"in_time": rate, "late": 0.0, "dropped": {}, "mean_batch": 1.0, "waiting": 0}
    sessions = tuple(
        SessionTraffic(name=name, rate=rate, sizes=Counter(drawn.tolist()), **fields)
        for name in ("other", "recommend")
    )
    return Traffic(ended=number * seconds, seconds=seconds, sessions=sessions, servers=())


def test_a_pool_that_is_enough_stays(plan: Path) -> None:
    """Nothing is said as long as the advice is the same; the load is the one that came."""
    advisor = PoolAdvisor(plan)

    assert [advisor.observe(window(number, 85.0)) for number in range(1, 5)] == [""] * 4
    assert advisor.latest is not None
    assert (advisor.latest.do, advisor.latest.gain) == ("keep", 0.0)
    assert advisor.latest.rate == pytest.approx(85.0, rel=0.02)


def test_other_sizes_ask_for_another_pool(plan: Path) -> None:
    """Once, with what is gained and what the switch costs; the same window counts once."""
    advisor = PoolAdvisor(plan)
    said = [advisor.observe(window(number, 80.0, gaussian_sizes(850, 30))) for number in range(1, 4)]

    (sentence,) = [one for one in said if one]
    assert sentence.startswith("another pool is advised: start ")
    assert "the sizes have changed: 80" in sentence
    assert "the switch takes 60 s and costs" in sentence
    assert advisor.latest is not None
    assert advisor.latest.gain > 0.05
    assert advisor.observe(window(3, 300.0)) == ""


def test_a_dispatcher_whose_machine_restarts(plan: Path) -> None:
    """Its clock begins anew: the load is that of the windows since; nothing is said until they suffice."""
    advisor = PoolAdvisor(plan)
    for number in range(5, 9):
        advisor.observe(window(number, 85.0))

    said = [advisor.observe(window(number, rate)) for number, rate in enumerate([40.0, 85.0, 85.0], start=1)]

    assert said == [""] * 3
    assert advisor.latest is not None
    assert advisor.latest.rate == pytest.approx(85.0, rel=0.02)


def test_while_all_backends_are_away(plan: Path) -> None:
    """The requests of that time, whose sizes are not known, neither change the advice nor count as a lull."""
    advisor = PoolAdvisor(plan)
    for number in range(1, 5):
        advisor.observe(window(number, 85.0))

    away = [window(number, 85.0) for number in range(5, 20)]
    blind = [replace(one, sessions=tuple(replace(s, sizes={}) for s in one.sessions)) for one in away]
    said = [advisor.observe(one) for one in [*blind, window(20, 85.0), window(21, 85.0)]]

    assert said == [""] * 17
    assert advisor.latest is not None
    assert advisor.latest.rate == pytest.approx(85.0, rel=0.02)


def test_a_file_without_a_pool(plan: Path) -> None:
    """It cannot be advised on."""
    plan.write_text(PLAN.partition("instances")[0])
    with pytest.raises(InvalidInput, match="does not say which instances run"):
        PoolAdvisor(plan)


@pytest.mark.parametrize(
    ("url", "text", "said"),
    [
        ("dispatch://127.0.0.1:9102", "budget: 1", "plan: "),
        ("sim://mlp", PLAN, "plan: is for a dispatcher"),
        ("dispatch://127.0.0.1:9102", None, "plan: "),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, url: str, text: str | None, said: str) -> None:
    """They are found before the daemon attaches to anything."""
    if text is not None:
        (tmp_path / "plan.yaml").write_text(text)
    path = tmp_path / "daemon.yaml"
    path.write_text(f"targets: [{{name: a, url: '{url}', slo: p95=30ms, plan: plan.yaml}}]")
    with pytest.raises(InvalidInput, match=said):
        load_yaml(path, DaemonConfig)


def test_the_scheme_may_be_in_capitals(plan: Path) -> None:
    """As in every address."""
    path = plan.with_name("daemon.yaml")
    path.write_text(f"targets: [{{name: a, url: 'DISPATCH://h:9102', slo: p95=30ms, plan: {plan.name}}}]")

    assert load_yaml(path, DaemonConfig).targets[0].plan == plan


def test_the_worker_says_it(bed: Bed) -> None:
    """As an event in the history; why there is none, once."""
    bed.write(("a", "observe", ""))
    config, said = load_yaml(bed.path, DaemonConfig), list[str]()
    answers: list[str | InvalidInput] = [
        "take another pool",
        "",
        InvalidInput("budget", "buys nothing"),
        InvalidInput("budget", "buys nothing"),
    ]

    def observe(traffic: Traffic) -> str:
        if isinstance(answer := answers[int(traffic.ended) - 1], InvalidInput):
            raise answer
        return answer

    with closing(Store(bed.folder / "s.db")) as store:
        worker = Worker(config.targets[0], store, say=lambda _, sentence, *__: said.append(sentence))
        worker.advisor = SimpleNamespace(observe=observe)  # type: ignore[assignment]
        for number in range(1, 5):
            backend = SimpleNamespace(traffic=lambda number=number: window(number, 5.0, seconds=1.0))
            worker._observe_traffic(SimpleNamespace(backend=backend))  # type: ignore[arg-type]
        events = [event.sentence for event in list_events(store)]

    assert said == ["take another pool", "there is no advice on the pool: budget: buys nothing"]
    assert all(any(sentence in event for event in events) for sentence in said)
