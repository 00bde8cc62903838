"""The experiment's rows: what a variant changes, by how much and how surely."""

from __future__ import annotations

from tests.experiments.quick import quick
from tuner.experiments.guard.ablation import GuardAblation
from tuner.experiments.guard.life import FIGURES
from tuner.experiments.guard.load import TROUBLED


def test_rows_say_what_a_variant_changes() -> None:
    """A change of every life shows; no change does not."""
    experiment = quick(GuardAblation, seeds=2)
    found = {}
    for task in experiment.tasks():
        more = 1.0 if task.variant.name == "budget switched off" else 0.0
        found[task] = [
            dict.fromkeys(FIGURES, 5.0) | {"changes": 5.0 + more} for _ in experiment.seeds_of(task)
        ]

    rows = {row.id: row for row in experiment.rows(found)}

    assert rows["as it is: changes"].measured == 5.0
    without = rows["budget switched off: more windows that broke the SLO"]
    assert without.measured == 0.0
    assert without.note == "changes +1 per 100 windows (1 to 1); 22 of 22 lives differ"
    assert rows["without setting aside unseen windows: more windows that broke the SLO"].note.startswith(
        "shows nothing; 0 of 22"
    )
    assert experiment.details(found)["differences"]["budget switched off"]["changes"]["shows"]


def test_limits_of_trouble_are_tried_where_there_is_trouble() -> None:
    """More seeds there, and none on which the rules were chosen."""
    experiment = quick(GuardAblation, seeds=3)
    tasks = [task for task in experiment.tasks() if task.variant.name == "breaker switched off"]

    assert {task.load for task in tasks} == TROUBLED
    assert list(experiment.seeds_of(tasks[0])) == [7001, 7002, 7003, 7004, 7005, 7006]
