"""Figures of Nexus' planner: the numbers that are exact, and the mixes that are packed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.experiments.quick import quick
from tuner.experiments.nexus.bound import mix
from tuner.experiments.nexus.fig2 import WorkedExample
from tuner.experiments.nexus.fig4 import PUBLISHED, SplitOfASlo, SplitTask
from tuner.experiments.nexus.fig16 import MIXES, SESSIONS, sessions_of
from tuner.experiments.nexus.fig17 import QueryAnalysis, QueryTask, case_rate, ssd_of


def test_all_numbers_of_the_worked_example(tmp_path: Path) -> None:
    """Exactly; and the duty cycles are drawn."""
    result = quick(WorkedExample).run()
    rows = {row.id: row for row in result.rows}

    published = [row for row in result.rows if row.published is not None]
    assert len(published) == 15
    assert [row.measured for row in published] == pytest.approx([row.published for row in published])
    assert rows["A, B and C: accelerators"].note == "A with B; C"
    assert WorkedExample.plot(result, tmp_path)[0].exists()


@pytest.mark.parametrize("gamma", PUBLISHED)
def test_all_numbers_of_figure_4(gamma: float) -> None:
    """To a tenth, as printed."""
    experiment = quick(SplitOfASlo)
    for time, published in PUBLISHED[gamma].items():
        found = experiment.measure(SplitTask(gamma, time), 0)

        assert found.given == pytest.approx(published, abs=0.05)
        assert found.best >= found.given - 1e-9


def test_query_analysis_gains_over_an_even_split() -> None:
    """By the plan, and in a simulation with the split that was found so."""
    experiment = quick(QueryAnalysis)
    task = QueryTask("47 ms", 400, 0.1, "Poisson")
    experiment.tasks = lambda: [task]  # type: ignore[method-assign]
    experiment.prepare()
    found = experiment.measure(task, 0)

    assert found.plan >= found.plan_even
    assert found.chosen > found.even


def test_the_profile_of_47_ms_gives_what_the_paper_says_of_its_ssd() -> None:
    """Half of it for the batch comes nearest to 534 queries/s on 16 accelerators."""
    rows = {share: ssd_of(share) for share in (0.4, 0.5, 0.6)}

    assert {one.alpha_ms + one.beta_ms for one in rows.values()} == {47.0}
    assert min(rows, key=lambda share: abs(case_rate(rows[share]) - 534)) == 0.5


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_has_its_sessions_in_random_order(name: str) -> None:
    """Sixteen with names of their own; the same for a seed."""
    names = [session.name for session in sessions_of(name, 1)]

    assert len(set(names)) == SESSIONS
    assert names == [session.name for session in sessions_of(name, 1)]
    assert sorted(names) == sorted(session.name for session in sessions_of(name, 2))


def test_a_mix_needs_as_many_accelerators_as_it_is_asked_for() -> None:
    """By the lower bound; the last session exceeds it."""
    loads = mix(np.random.default_rng(1), 8)
    needs = [load.rate / load.peak for load in loads]

    assert sum(needs[:-1]) < 8 <= sum(needs)
