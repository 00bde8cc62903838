"""Model Analyzer's quick search, one move after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agents.bed import HIGH, LOW, RATES, make_space, surface, windows_to_near
from tuner.agents import State
from tuner.agents.rivals.hill_climb import HillClimb, HillClimbParameters
from tuner.knobs import Knob, KnobSpace

ELEVEN = tuple(range(11))
PLANE = KnobSpace([Knob(name="x", grid=ELEVEN, default=0), Knob(name="y", grid=ELEVEN, default=0)])


def at(configuration: int) -> State:
    return State(level=LOW, configuration=configuration)


def climb(agent: HillClimb, costs: np.ndarray, windows: int) -> list[tuple[int, int]]:
    """The places it measures."""
    places, current = [], 0
    for _ in range(windows):
        current = agent.select(at(current))
        agent.update(at(current), current, float(costs[current]), at(current))
        places.append(tuple(PLANE.coordinates[current].tolist()))
    return places


def bowl(x: int, y: int, slope: float = 0.01) -> np.ndarray:
    """Costs that keep the SLO everywhere, the least at a place."""
    return np.asarray(0.2 + slope * ((PLANE.coordinates - [x, y]) ** 2).sum(axis=1))


def test_probes_show_new_values_of_every_knob() -> None:
    """After home, places that differ in both knobs from home, and from each other."""
    places = climb(HillClimb(PLANE, HillClimbParameters(radius=3.0)), bowl(9, 9), 4)

    assert places[0] == (0, 0)
    assert all(0 < x * x + y * y <= 9 for x, y in places[1:])
    assert len({x for x, _ in places[1:]}) == 3


def test_step_vector_leads_downhill() -> None:
    """After the probes home moves by up to three steps per knob toward the cheaper ones."""
    places = climb(HillClimb(PLANE, HillClimbParameters(radius=3.0)), bowl(9, 9, 0.004), 5)

    x, y = places[4]

    assert 0 < x <= 3
    assert 0 < y <= 3


def test_a_home_out_of_reach_counts_as_worse_than_all_around_it() -> None:
    """Home goes on by three steps at once toward the probes, though none of them keeps the SLO."""
    agent = HillClimb(PLANE)
    probes = np.array([84, 85, 95])  # (7, 7), (7, 8) and (8, 7), beside the home (8, 8)
    for probe in probes:
        agent.update(at(int(probe)), int(probe), 2.0, at(int(probe)))

    moved = agent._next_home(96, probes, agent.records[LOW])

    assert PLANE.coordinates[moved].tolist() == [5, 5]


def test_reaches_the_bottom_and_holds_it() -> None:
    """Without noise it ends in the local optimum, whatever the start; then the best is held."""
    for start in (0, 60, 120):
        agent = HillClimb(PLANE, HillClimbParameters(start=start, restarts=0))

        assert climb(agent, bowl(6, 4), 60)[-5:] == [(6, 4)] * 5


def test_is_slow_where_the_slo_breaks() -> None:
    """Beside overload it measures direct neighbours of home only, and home stays where the SLO is kept."""
    costs = bowl(9, 9)
    costs[PLANE.coordinates.sum(axis=1) <= 2] = 5.0
    agent = HillClimb(PLANE, HillClimbParameters(start=PLANE.encode({"x": 2, "y": 1})))

    places = climb(agent, costs, 60)

    assert places[-1] == (9, 9)


def test_restarts_far_away() -> None:
    """A second valley, cheaper and farther, is found with a restart and not without."""
    costs = np.minimum(bowl(1, 1, 0.02), bowl(9, 9, 0.02) - 0.1)
    ends = [
        climb(HillClimb(PLANE, HillClimbParameters(restarts=restarts, budget=120)), costs, 125)[-1]
        for restarts in (0, 3)
    ]

    assert ends == [(1, 1), (9, 9)]


def test_a_restart_where_nothing_could_be_measured_leads_far_from_home() -> None:
    """Home and all around it are out of reach; a corner of the plane is not."""
    agent = HillClimb(PLANE, HillClimbParameters(start=96, radius=1.0, restarts=1))

    assert agent.select(at(0), np.array([0])) == 0
    assert agent._climbs[LOW].home == 0


def test_finds_a_good_configuration_on_the_bed() -> None:
    """Cold, median of 5 seeds."""
    space = make_space()
    found = [
        windows_to_near(
            HillClimb(space, seed=seed), space, surface(space, RATES[HIGH]), HIGH, seed=seed, windows=60
        )
        for seed in range(5)
    ]

    assert np.median([windows for windows, _ in found]) <= 45


@pytest.mark.parametrize("wrong", [{"radius": 0.5}, {"probes": 0}, {"restarts": -1}, {"budget": 0}])
def test_constants_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """The message says the rule and the values."""
    with pytest.raises(ValueError, match="must be"):
        HillClimbParameters(**wrong)
