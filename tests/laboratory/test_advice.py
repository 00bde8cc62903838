"""Advice for a server that was only watched."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement
from tuner.agents import State
from tuner.agents.rrl import RRL
from tuner.agents.rrl.forms import form
from tuner.control.decide.evidence import SPREAD
from tuner.errors import InvalidInput
from tuner.knobs import KnobSpace, Role
from tuner.laboratory.advice import ServerBelief, advise
from tuner.measurement import NOT_KNOWN, UNANSWERED


@pytest.mark.parametrize(("share", "change"), [(0.02, True), (-0.02, False)])
def test_a_change_is_advised_where_the_control_loop_would_make_it(share: float, change: bool) -> None:
    """From the same gain on."""
    agent, watched = ScriptedAgent(), measurement(0.020)
    expected = OBJECTIVE.cost(watched) * (1 - SPREAD - share)
    agent.learned = {SPACE.encode(configuration()): 1.0, SPACE.encode(configuration(4)): expected}

    advice = advise(SPACE, OBJECTIVE, configuration(), [watched], agent=agent)

    assert advice.change is change
    assert advice.configuration == configuration(4 if change else 1)


@pytest.mark.parametrize(("batch", "expected", "change"), [(1, 1.0, True), (1, 0.42, False), (8, 1.0, False)])
def test_an_unknown_present_cost_is_what_the_policy_expects(
    batch: int, expected: float, change: bool
) -> None:
    """Of a server without quantiles none is measured; one that the policy does not know either is left."""
    agent, watched = ScriptedAgent(), replace(measurement(0.020), latency_p95=NOT_KNOWN)
    agent.learned = {SPACE.encode(configuration(4)): 0.4, SPACE.encode(configuration(batch)): expected}

    advice = advise(SPACE, OBJECTIVE, configuration(), [watched], agent=agent)

    assert advice.change is change
    reason = "expects cost 0.40 instead of 1.00" if change else "would not change"
    assert advice.reasons == (f"the policy {reason}",)


def test_a_policy_answers_for_a_load_that_it_never_met() -> None:
    """It knows no costs there, and recommends what is best at the nearest load."""
    policy = RRL(SPACE, form("rrl", {"prior": "none"}), seed=0, synchronous=True)
    one, four = SPACE.encode(configuration()), SPACE.encode(configuration(4))
    state = State(level=policy.levels.level(200.0), configuration=one, rate=200.0)
    for number in [one, four] * 3:
        policy.update(state, number, 0.3 if number == four else 3.0, state)
    beside = replace(measurement(0.060), foreign_share=0.5)

    advice = advise(SPACE, OBJECTIVE, configuration(), [beside], agent=policy)

    assert advice.configuration == configuration(4)
    assert "knows no costs at this load" in advice.reasons[0]
    policy.close()


def trained(rate: float, costs: dict[float, float], *, transferred: bool = True) -> RRL:
    """A policy that was trained at one load, with the costs of some batch sizes."""
    policy = RRL(SPACE, form("rrl", {"prior": "none"}), seed=0, synchronous=True)
    state = State(level=policy.levels.level(rate), configuration=0, rate=rate)
    for batch, cost in list(costs.items()) * 3:
        policy.update(state, SPACE.encode(configuration(batch)), cost, state)
    if transferred:
        policy.transfer(synchronous=True)
    return policy


@pytest.mark.parametrize(("rate", "met"), [(60.0, True), (65.0, True), (480.0, False), (6.0, False)])
def test_a_trained_policy_knows_only_the_loads_of_its_training(rate: float, met: bool) -> None:
    """Its costs at 60 requests/s are none at eight times as many: how they compare is all that it knows."""
    policy = trained(60.0, {1: 0.6, 4: 0.3})

    advice = advise(SPACE, OBJECTIVE, configuration(), [measurement(0.018, rate=rate)], agent=policy)

    assert (advice.change, advice.configuration) == (True, configuration(4))
    assert ("knows no costs at this load" in advice.reasons[0]) == (not met)
    assert ("expects cost" in advice.reasons[0]) == met
    assert math.isnan(advice.rows[1].cost) == (not met)
    policy.close()


def test_a_policy_knows_a_load_that_was_measured_after_its_training() -> None:
    """Of the same server, far from all loads of the training."""
    policy = trained(60.0, {1: 0.6, 4: 0.3})
    state = State(level=policy.levels.level(480.0), configuration=0, rate=480.0)
    for batch, cost in [(1, 0.6), (4, 0.3)] * 3:
        policy.update(state, SPACE.encode(configuration(batch)), cost, state)

    advice = advise(SPACE, OBJECTIVE, configuration(), [measurement(0.018, rate=480.0)], agent=policy)

    assert advice.change
    assert "instead of 0.60" in advice.reasons[0]
    policy.close()


def test_a_policy_is_asked_at_the_load_that_was_watched() -> None:
    """Its cost is the one at that load, not one for its whole level."""
    policy = trained(250.0, {1: 0.9, 4: 0.4})
    for rate, cost in ((240.0, 0.3), (292.0, 0.8)):
        state = State(level=policy.levels.level(rate), configuration=0, rate=rate)
        for _ in range(5):
            policy.update(state, SPACE.encode(configuration(4)), cost, state)
    unknown = replace(measurement(rate=292.0), latency_p95=NOT_KNOWN)

    advice = advise(SPACE, OBJECTIVE, configuration(), [unknown], agent=policy)

    assert advice.rows[1].configuration == configuration(4)
    assert advice.rows[1].cost == pytest.approx(0.8, rel=0.1)
    policy.close()


@pytest.mark.parametrize("windows", [1, 3])
def test_a_policy_learns_from_what_was_watched_before_it_is_asked(windows: int) -> None:
    """This server is a quarter dearer than that of the training, so that the other one is, too."""
    policy = trained(200.0, {1: 0.42, 4: 0.40})
    watched = [measurement(0.53 * OBJECTIVE.slo.latency)] * windows

    advice = advise(SPACE, OBJECTIVE, configuration(), watched, agent=policy)

    assert advice.rows[0].cost == pytest.approx(0.53)
    assert not advice.change
    assert advice.configuration == configuration()
    policy.close()


def test_windows_of_no_configuration_of_the_grids_teach_a_policy_nothing() -> None:
    """What runs is not the configuration that is nearest to it; the SLO's statistic may be missing, too."""
    agent = ScriptedAgent()
    agent.learned = dict.fromkeys(map(int, SPACE.distinct), 0.5)
    unknown = replace(measurement(0.020), latency_p95=NOT_KNOWN)

    for running, watched in ((configuration(3), measurement(0.020)), (configuration(), unknown)):
        advise(SPACE, OBJECTIVE, running, [replace(watched, configuration=running)], agent=agent)

    assert agent.updates == []


@pytest.mark.parametrize("ratio", [1.25, 2.0])
def test_a_policy_is_asked_by_its_own_load_levels(ratio: float) -> None:
    """A number of another grid would be that of another load: of 16 times the rate, or more."""
    policy = RRL(SPACE, form("rrl", {"levels.ratio": ratio, "prior": "none"}), seed=0, synchronous=True)
    one, four = SPACE.encode(configuration()), SPACE.encode(configuration(4))
    for rate, best in ((50.0, one), (2000.0, four)):
        state = State(level=policy.levels.level(rate), configuration=one, rate=rate)
        for number in [one, four] * 3:
            policy.update(state, number, 0.3 if number == best else 3.0, state)
    watched = measurement(0.020, rate=50.0, running=configuration(4))

    advice = advise(SPACE, OBJECTIVE, configuration(4), [watched], agent=policy)

    assert advice.configuration == configuration()
    policy.close()


@pytest.mark.parametrize(("foreign", "best"), [(0.0, 4), (0.75, 1)])
def test_a_policy_is_asked_for_the_neighbours_that_were_there(foreign: float, best: float) -> None:
    """Beside others that take three quarters of the machine, it learned something else."""
    policy = RRL(SPACE, form("rrl", {"prior": "none"}), seed=0, synchronous=True)
    one, four = SPACE.encode(configuration()), SPACE.encode(configuration(4))
    for share, cheap in ((0.0, four), (0.75, one)):
        state = State(level=policy.levels.level(200.0, foreign=share), configuration=one, rate=200.0)
        for number in [one, four] * 3:
            policy.update(state, number, 0.3 if number == cheap else 3.0, state)
    watched = replace(measurement(0.020, running=configuration(2)), foreign_share=foreign)

    advice = advise(SPACE, OBJECTIVE, configuration(2), [watched] * 3, agent=policy)

    assert advice.configuration == configuration(best)
    policy.close()


def test_the_estimator_counts_on_the_cores_that_neighbours_leave() -> None:
    """Beside others that take three quarters of the machine, more instances do not help."""
    alone = replace(measurement(0.020, rate=150.0), compute_mean=0.005, batch_mean=1.0, foreign_share=0.0)
    beside = replace(alone, foreign_share=0.75)
    objective = replace(OBJECTIVE, cores=8.0)

    free, shared = (advise(SPACE, objective, configuration(), [m] * 3) for m in (alone, beside))

    assert free.configuration["instances"] == 2
    assert shared.configuration["instances"] == 1


def test_the_advice_is_for_the_load_that_it_names() -> None:
    """The median of the windows, whichever was the last."""
    often, once = (
        replace(measurement(0.020, rate=rate), compute_mean=0.005, batch_mean=1.0) for rate in (180.0, 60.0)
    )

    last, between = (
        advise(SPACE, OBJECTIVE, configuration(), watched)
        for watched in ([often, often, once], [often, once, often])
    )

    assert last.rate == between.rate == 180.0
    assert last.configuration == between.configuration
    assert [row.expected for row in last.rows] == pytest.approx([row.expected for row in between.rows], 0.05)


def test_a_statistic_that_nobody_measured_is_expected_all_the_same() -> None:
    """From how long executions take; the advice does not say how far it is off."""
    watched = replace(measurement(0.020), latency_p95=NOT_KNOWN, compute_mean=0.005, batch_mean=1.0)

    advice = advise(SPACE, OBJECTIVE, configuration(), [watched])

    assert math.isnan(advice.rows[0].measured)
    assert advice.rows[0].expected > 0
    assert not any("what was measured" in sentence for sentence in advice.reasons)


def test_the_estimate_of_what_runs_is_held_against_what_was_measured() -> None:
    """In words: a reader saw -0% before."""
    watched = replace(measurement(0.020), compute_mean=0.005, batch_mean=1.0)

    advice = advise(SPACE, OBJECTIVE, configuration(), [watched])

    error = advice.rows[0].expected / 0.020 - 1
    side = "above" if error > 0 else "below"
    miss = f"{abs(error):.0%} {side}" if abs(error) >= 0.01 else "within 1% of"
    assert f"for the present configuration the estimate is {miss} what was measured" in advice.reasons


@pytest.mark.parametrize("p95", [0.020, 0.200, 2.0])
def test_a_careful_best_is_explained_where_a_row_below_looks_better(p95: float) -> None:
    """That is so of the cost; the ± of the table is the latency's."""
    watched = replace(measurement(p95, rate=300.0), compute_mean=0.005, batch_mean=1.0)

    advice = advise(SPACE, OBJECTIVE, configuration(), [watched])

    shown = advice.rows[1:]
    looks_better = shown[0].name == "best" and shown[0].cost > min(row.cost for row in shown)
    assert any("as its estimate is unsure" in sentence for sentence in advice.reasons[1:2]) == looks_better
    assert not any("±" in sentence for sentence in advice.reasons)


def test_a_server_unlike_all_of_the_training_is_called_so() -> None:
    """No server that it was trained on has so little load."""
    watched = replace(measurement(0.020, rate=1e-6), compute_mean=0.005, batch_mean=1.0, requests=5)
    usual = replace(measurement(0.020), compute_mean=0.005, batch_mean=1.0)

    strange, common = (advise(SPACE, OBJECTIVE, configuration(), [m]).reasons for m in (watched, usual))

    assert any("trained on no server like this one in" in reason for reason in strange)
    assert not any("like this one" in reason for reason in common)


@pytest.mark.parametrize(
    ("expected", "spread", "unsure"), [(0.35, 0.45, True), (0.35, 0.9, True), (0.46, 0.45, False)]
)
def test_what_is_better_but_too_unsure_is_named(
    monkeypatch: pytest.MonkeyPatch, expected: float, spread: float, unsure: bool
) -> None:
    """What runs is the best at its worst; that none is better is said only where the table shows none."""
    here, other = SPACE.encode(configuration()), SPACE.encode(configuration(4))
    mean, deviation = np.full(SPACE.size, math.log(0.48)), np.full(SPACE.size, 0.15)
    mean[here], deviation[here] = math.log(0.50), 0.05
    mean[other], deviation[other] = math.log(expected), spread
    monkeypatch.setattr("tuner.laboratory.advice._belief", lambda *_: ServerBelief(mean, deviation, ()))

    advice = advise(SPACE, OBJECTIVE, configuration(), [measurement(0.5 * OBJECTIVE.slo.latency)])

    now, *others = advice.rows
    assert not advice.change
    assert now.cost == pytest.approx(0.50)
    assert any(row.cost < (1 - SPREAD) * now.cost for row in others) == unsure
    assert ("no configuration is expected to be 10% better" in advice.reasons[0]) == (not unsure)
    words = "max_batch_size=4 max_queue_delay=0ms instances=1 is expected to cost 30% less, but"
    assert (words in advice.reasons[0]) == unsure


@pytest.mark.parametrize("roles", [True, False])
def test_where_nothing_is_known_it_is_left(roles: bool) -> None:
    """No window shows how long executions take, or no knob has a role: the reasons say what to do."""
    watched = replace(measurement(0.020), compute_mean=NOT_KNOWN)
    knobs = SPACE.knobs if roles else [replace(knob, role=Role.OTHER, idle_when=None) for knob in SPACE.knobs]

    advice = advise(KnobSpace(knobs), OBJECTIVE, configuration(), [watched])

    assert not advice.change
    assert advice.configuration == configuration()
    assert [row.name for row in advice.rows] == ["now"]
    assert ("how long executions take" if roles else "max_queue_delay") in advice.reasons[0]
    assert "tuner run" in advice.reasons[1]


def test_an_overloaded_window_is_expected_as_it_was_measured() -> None:
    """Beyond ten times the SLO, where costs grow with the logarithm only."""
    watched = replace(measurement(3.0), compute_mean=0.005, batch_mean=1.0)

    advice = advise(SPACE, OBJECTIVE, configuration(), [watched] * 3)

    assert advice.rows[0].expected == pytest.approx(3.0, rel=0.3)


@pytest.mark.parametrize(("slo", "verdict"), [(0.030, "is not known whether"), (0.0002, "more capacity")])
def test_that_nothing_keeps_the_slo_is_said_where_it_is_sure(slo: float, verdict: str) -> None:
    """An overloaded window shows little of what others bear, but that an execution alone takes longer."""
    watched = replace(measurement(6.0, rate=300.0), compute_mean=0.005, batch_mean=1.0)
    objective = replace(OBJECTIVE, slo=replace(OBJECTIVE.slo, latency=slo))

    advice = advise(SPACE, objective, configuration(), [watched] * 3)

    assert advice.rows[1].expected > slo
    (said,) = [sentence for sentence in advice.reasons if "keep" in sentence]
    assert verdict in said


def test_a_window_of_another_configuration_is_left_out() -> None:
    """Somebody changed the server while it was watched: what it ran before says nothing of what it runs."""
    before = [measurement(0.020), measurement(0.021)]
    now = measurement(0.010, running=configuration(8))

    advice = advise(SPACE, OBJECTIVE, configuration(8), [*before, now], agent=ScriptedAgent())

    assert advice.rows[0].measured == pytest.approx(0.010)
    with pytest.raises(InvalidInput, match="changed while it was watched"):
        advise(SPACE, OBJECTIVE, configuration(8), before)


def test_without_traffic_there_is_nothing_to_recommend() -> None:
    """And the message says what helps."""
    idle = replace(measurement(NOT_KNOWN), arrival_rate=0.0, requests=0, disturbed=(UNANSWERED,))

    with pytest.raises(InvalidInput, match=r"while it was watched; come back .* or give --rate 20"):
        advise(SPACE, OBJECTIVE, configuration(), [idle, idle])


def test_what_runs_outside_the_grids_is_shown_as_it_is() -> None:
    """The nearest configuration of the grids would be another one."""
    running = configuration(3, 0.0007)
    agent = ScriptedAgent()
    agent.learned = {SPACE.encode(SPACE.nearest(running)): 0.1}

    advice = advise(SPACE, OBJECTIVE, running, [measurement(0.020, running=running)], agent=agent)

    assert advice.rows[0].configuration == running
    assert advice.change
    assert advice.configuration == SPACE.nearest(running)
