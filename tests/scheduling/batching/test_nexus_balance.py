"""Plans by which the session that loses most gets relief."""

from __future__ import annotations

import pytest

from tuner.cluster.scenario import Scenario, Session
from tuner.scheduling.batching.nexus_balance import balanced_placement, candidate_placements, moves
from tuner.scheduling.batching.nexus_plan import Placement, check_placement, make_placement
from tuner.scheduling.cluster import ClusterSpec

pytestmark = pytest.mark.kernels
RATES = (300.0, 200.0, 100.0, 100.0)
LOST = (0.2, 0.1, 3.0, 0.0)
WORST = 2


def make_spec(slos: tuple[float, ...] = (60.0, 100.0, 40.0, 200.0), accelerators: int = 3) -> ClusterSpec:
    """Four sessions of one model on some accelerators."""
    sessions = [
        Session(name=str(number), alpha_ms=1.0, beta_ms=5.0, slo_ms=slo, rate=rate)
        for number, (slo, rate) in enumerate(zip(slos, RATES, strict=True))
    ]
    return Scenario(policy="nexus", accelerators=accelerators, sessions=tuple(sessions)).cluster_spec()


def rates_of(plan: Placement) -> list[float]:
    """Requests/s of every session on all accelerators."""
    return [sum(one.rate for row in plan.backends for one in row if one.session == s) for s in range(4)]


def test_a_move_takes_work_from_where_most_is_lost() -> None:
    """Every session keeps its rate; one accelerator of the worst has less to do, another more."""
    spec = make_spec()
    plan = next(candidate_placements(spec, RATES))
    hosts = [place for place, row in enumerate(plan.backends) if WORST in {one.session for one in row}]

    found = list(moves(spec, plan, LOST))

    assert found
    assert len(set(found)) == len(found)
    for moved in found:
        check_placement(moved, spec)
        assert rates_of(moved) == pytest.approx(rates_of(plan))
        changed = [
            sum(one.rate for one in after) - sum(one.rate for one in before)
            for before, after in zip(plan.backends, moved.backends, strict=True)
        ]
        assert sorted(number != 0 for number in changed) == [False, True, True]
        assert min(range(3), key=changed.__getitem__) in hosts


def test_moves_go_where_least_is_lost_the_worst_session_first() -> None:
    """Of the five others, accelerators 4, 3 and 5 lose 0 and 0.1; half of session 2 is tried there first."""
    rows = [[(0, 1, 9.0)], [(0, 1, 9.0)], [(3, 1, 9.0), (WORST, 1, 9.0)], [(1, 1, 9.0)], [(3, 1, 9.0)]]
    plan = Placement.of([*rows, [(1, 1, 9.0)]])

    found = list(moves(make_spec(accelerators=6), plan, LOST))

    receivers = [
        next(place for place in (0, 1, 3, 4, 5) if moved.backends[place] != plan.backends[place])
        for moved in found
    ]
    assert receivers[:3] == [4, 3, 5]
    assert set(receivers) == {3, 4, 5}
    assert [[one.rate for one in moved.backends[2]] for moved in found[:3]] == [[9.0, 4.5]] * 3


def test_an_accelerator_keeps_part_of_its_only_session() -> None:
    """A half, a quarter and a tenth of it go to each of the two others, never all."""
    plan = Placement.of([[(WORST, 1, 8.0)], [(0, 1, 8.0)], [(1, 1, 8.0)]])

    found = list(moves(make_spec(), plan, LOST))

    assert [moved.backends[0][0].rate for moved in found] == pytest.approx([4, 4, 6, 6, 7.2, 7.2])


def test_balancing_serves_what_is_asked_for() -> None:
    """On six accelerators, of which some share a session, all of its parts add up to its rate."""
    spec = make_spec(accelerators=6)
    plan = make_placement(spec, RATES)

    balanced = balanced_placement(spec, RATES, plan)

    assert sum(len(row) for row in plan.backends) > 4
    assert rates_of(balanced) == pytest.approx(RATES)


def test_without_rates_there_is_nothing_to_balance() -> None:
    """The plan is that of equal rates."""
    spec, none = make_spec(), [0.0] * 4
    plan = make_placement(spec, none)

    assert balanced_placement(spec, none, plan) == plan


def test_there_is_no_move_where_a_session_has_no_time_to_wait() -> None:
    """What an accelerator should host then is no question of room."""
    spec = make_spec((60.0, 100.0, 40.0, 8.0))
    plan = next(candidate_placements(spec, RATES))

    assert list(moves(spec, plan, LOST)) == []


@pytest.mark.compiled
def test_more_sessions_than_can_be_packed_stay_unbalanced() -> None:
    """Every session is everywhere, and no accelerator has room for a burst: that is the only plan."""
    sessions = Session(name="s", alpha_ms=1.0, beta_ms=5.0, slo_ms=25.0, rate=100.0, copies=8)
    spec = Scenario(policy="nexus", accelerators=2, sessions=(sessions,)).cluster_spec()

    (plan,) = candidate_placements(spec, [100.0] * 8)

    assert [len(row) for row in plan.backends] == [8, 8]
