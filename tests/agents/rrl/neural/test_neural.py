"""The neural estimator: what is known of a server, formulas, inputs and weights, and an agent with it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.agents.rrl.neural.neural_bed import OBJECTIVE, RATE, SPACE, knowledge, seen, state
from tuner.agents import State
from tuner.agents.policy_file import StoredArrays
from tuner.agents.rrl import RRL, RRLParameters
from tuner.agents.rrl.neural import network
from tuner.agents.rrl.neural.estimator import AUTOMATIC, WIDEST, costs_of, describable, estimate
from tuner.agents.rrl.neural.inputs import INPUTS, inputs_of
from tuner.agents.rrl.neural.knowledge import Reference, complete_profile
from tuner.agents.rrl.neural.network import FACTORS, evaluate, shipped, shipped_sheet
from tuner.agents.rrl.neural.prior import NeuralPrior, estimable
from tuner.agents.rrl.neural.queueing import queue_of, settings_of
from tuner.agents.rrl.perception import SmoothPerception
from tuner.agents.rrl.risk import bearable
from tuner.envs.simulator.tfserving_cpu import CPU_MODELS
from tuner.errors import StorageError
from tuner.knobs import Knob, KnobSpace, Role
from tuner.objective import BadRateObjective, Objective, Slo


def test_a_profile_is_a_line_between_the_sizes_that_were_seen_and_ever_less_sure_beyond() -> None:
    """As far as it was seen it is what was seen."""
    seconds, doubt = complete_profile({1.0: (0.010, 0.05), 4.0: (0.016, 0.05)})

    assert seconds == pytest.approx([0.010, 0.012, 0.016, 0.024, 0.040, 0.072, 0.136])
    assert doubt[:3] == pytest.approx([0.05] * 3)
    assert (np.diff(doubt[2:]) > 0).all()


def test_a_profile_of_one_size_is_guessed_and_never_falls() -> None:
    """Whatever size that was."""
    for size in (1.0, 5.0, 100.0):
        seconds, _ = complete_profile({size: (0.010, 0.05)})
        assert (np.diff(seconds) >= 0).all()
        assert (seconds > 0).all()


@pytest.mark.parametrize("bad", [{}, {1.0: (0.0, 0.1)}, {1.0: (math.nan, 0.1)}])
def test_a_profile_of_nothing_is_refused(bad: dict[float, tuple[float, float]]) -> None:
    """No batch, or none that took any time."""
    with pytest.raises(ValueError, match="at least one batch size"):
        complete_profile(bad)


def test_the_formulas_are_those_of_one_queue() -> None:
    """With batches of 1 on one instance: an M/M/1 queue waits rho / (1 - rho) services."""
    known = knowledge()
    settings = settings_of(SPACE, 2.0)
    alone = SPACE.encode({"max_batch_size": 1, "max_queue_delay": 0, "instances": 1})

    queue = queue_of(settings, known, 100.0)

    service, busy = known.seconds[0], 100.0 * known.seconds[0]
    assert queue.full[alone] == pytest.approx(busy)
    assert queue.wait[alone] == pytest.approx(busy / (1 - busy) * service)


def test_the_load_forms_batches_up_to_the_largest() -> None:
    """A heavier load forms larger ones."""
    settings = settings_of(SPACE, 2.0)
    light, heavy = (queue_of(settings, knowledge(), rate) for rate in (10.0, 800.0))

    assert (heavy.formed >= light.formed - 1e-9).all()
    assert (heavy.formed <= settings.batch).all()
    assert heavy.formed.max() > 4


@pytest.mark.parametrize(("grid", "batches"), [((0, 1), [64, 1]), ((0, 16, 128), [128, 16, 128])])
def test_no_batch_limit_is_read_as_the_largest(grid: tuple[float, ...], batches: list[float]) -> None:
    """The 0 of a dispatcher's `batch_cap` leaves batches to its sessions; they are not batches of 1."""
    space = KnobSpace([Knob(name="batch_cap", grid=grid, default=0, role=Role.BATCH)])

    assert settings_of(space, 2.0).batch.tolist() == batches


def test_each_gpu_has_its_own_instances() -> None:
    """A server with four of them executes four times as much at once."""
    knobs = [replace(knob, places=4) if knob.role is Role.PARALLELISM else knob for knob in SPACE.knobs]
    known = replace(knowledge(), gpu=True)
    default = SPACE.encode(SPACE.default)

    one, four = (queue_of(settings_of(space, 2.0), known, 100.0) for space in (SPACE, KnobSpace(knobs)))

    assert (one.slots[default], four.slots[default]) == (1.0, 4.0)
    assert four.slots.max() == 4.0 * one.slots.max()
    assert four.full == pytest.approx(one.full / 4.0)


def test_a_server_ten_times_as_slow_under_a_tenth_of_the_load_looks_alike() -> None:
    """Inputs are relative; only the delays of the grid are not, so those of 0 are compared."""
    rows = []
    for scale in (1.0, 10.0):
        settings = settings_of(SPACE, 2.0)
        undelayed = settings.row(np.flatnonzero(settings.delay == 0))
        watched = settings.row(np.array([SPACE.encode(SPACE.default)]))
        rows.append(inputs_of(undelayed, knowledge(scale), RATE / scale, watched).rows)

    assert rows[0].shape[1] == INPUTS
    assert rows[0] == pytest.approx(rows[1], abs=1e-4)


def test_the_weights_are_those_of_the_data_sheet() -> None:
    """They are small, and say what they were trained on."""
    sheet = shipped_sheet()

    assert network.WEIGHTS.stat().st_size < 1_000_000
    assert sheet["parameters"] == sum(layer.size for layer in shipped().layers)
    assert {"servers", "seeds", "sha256", "trained on"} <= set(sheet)


def test_damaged_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit is enough."""
    data = bytearray(network.WEIGHTS.read_bytes())
    data[-1] ^= 1
    (tmp_path / "weights.npz").write_bytes(data)
    monkeypatch.setattr(network, "WEIGHTS", tmp_path / "weights.npz")

    with pytest.raises(StorageError, match="damaged"):
        network.shipped.__wrapped__()


def test_inputs_beyond_those_of_the_training_are_counted() -> None:
    """They are clipped, so that the network says nothing wild."""
    rows = inputs_of(settings_of(SPACE, 2.0), knowledge(watched=False), RATE).rows
    usual, far = evaluate(shipped(), rows), evaluate(shipped(), rows + 1e6)

    assert (far.beyond > 0).mean() > 0.9 > (usual.beyond > 0).mean()
    assert np.isfinite(far.mean).all()


def test_out_of_range_it_is_less_sure_and_says_in_what() -> None:
    """The farther out the less: no training server has more than 24 cores on a CPU."""
    widths = []
    for cores, unlike in ((2.0, False), (60.0, True), (500.0, True)):
        known = replace(knowledge(watched=False), cores=cores)
        shown = estimate(SPACE, known, RATE)
        plain = evaluate(shipped(), inputs_of(settings_of(SPACE, cores), known, RATE).rows)
        assert ("cores" in shown.unlike) is unlike
        widths.append(float((shown.deviation / plain.deviation).mean()))

    assert widths[0] == pytest.approx(1.0)
    assert 1.1 < widths[1] < widths[2] <= WIDEST


def test_unknown_quantities_leave_the_rest_finite() -> None:
    """A server need not report quantiles, its CPU use or what goes on inside."""
    known = knowledge()
    assert known.reference is not None
    blind = Reference(
        configuration=0, rate=RATE, latencies=np.full(4, math.nan), use=math.nan, inside=np.full(3, math.nan)
    )
    for reference in (known.reference, blind):
        settings = settings_of(SPACE, 2.0)
        rows = inputs_of(settings, knowledge(), RATE, settings.row(np.array([reference.configuration]))).rows
        assert np.isfinite(rows).all()


@pytest.mark.parametrize("goal", ["latency", "strict", "cpu"])
def test_costs_follow_the_objective(goal: str) -> None:
    """Where the SLO is broken for sure, the cost is what the objective says of that latency."""
    objective = Objective(slo=Slo(statistic="p95", latency=1e-6), goal=goal, cores=2.0)
    shown = estimate(SPACE, knowledge(), RATE)
    costs = costs_of(shown, objective)

    ratio = np.exp(shown.mean[:, 2]) / 1e-6
    saturated = 10.0 * (1.0 + np.log(ratio / 10.0))
    assert np.exp(costs.mean) == pytest.approx(saturated + (goal != "latency"), rel=1e-6)
    assert costs.loadings.shape == (SPACE.size, FACTORS + 3)
    assert (costs.deviation > 0).all()


@pytest.mark.parametrize(("goal", "near"), [("latency", False), ("strict", False), ("cpu", True)])
def test_only_the_least_use_is_looked_for_near_the_slo(goal: str, near: bool) -> None:
    """The least latency is not there, however dear a broken SLO is."""
    objective = Objective(slo=Slo(statistic="p95", latency=0.03), goal=goal, cores=2.0)

    assert math.isfinite(NeuralPrior(SPACE, objective).broken) is near


def test_the_least_cpu_is_expected_where_the_slo_is_surely_kept() -> None:
    """Then the cost is the share of the cores."""
    objective = Objective(slo=Slo(statistic="p95", latency=3600.0), goal="cpu", cores=2.0)
    shown = estimate(SPACE, knowledge(), RATE)

    assert np.exp(costs_of(shown, objective).mean) == pytest.approx(
        np.minimum(np.exp(shown.mean[:, 4]) / 2.0, 1.0), rel=1e-6
    )


@pytest.mark.parametrize("goal", ["strict", "cpu"])
def test_a_configuration_that_may_break_the_slo_is_uncertain(goal: str) -> None:
    """Half of its chances are those of a kept SLO, half those of a broken one; draws of latencies agree."""
    shown = estimate(SPACE, knowledge(), RATE)
    here = SPACE.encode(SPACE.default)
    latency = math.exp(shown.mean[here, 2])
    objective = Objective(slo=Slo(statistic="p95", latency=latency), goal=goal, cores=2.0)

    costs = costs_of(shown, objective)

    deviation = math.hypot(shown.deviation[here, 2], float(np.linalg.norm(shown.loadings[here, 2])))
    ratios = np.exp(np.random.default_rng(1).normal(scale=deviation, size=100_000))
    kept = np.log(ratios) if goal == "strict" else np.log(np.exp(shown.mean[here, 4]) / 2.0)
    drawn = np.where(ratios <= 1.0, kept, np.log1p(ratios))
    assert costs.mean[here] == pytest.approx(drawn.mean(), abs=0.1)
    assert costs.deviation[here] == pytest.approx(drawn.std(), rel=0.25)
    assert costs.leap is not None
    line = np.polynomial.Polynomial.fit(np.log(ratios), drawn, 1)
    assert costs.leap[here] == pytest.approx((drawn - line(np.log(ratios))).std(), rel=0.25)


def test_rrl_has_the_estimator_where_it_knows_the_objective() -> None:
    """Not for knobs it knows nothing of, for a scheduler's objective, or if it is switched off."""
    other = KnobSpace([Knob(name="parameters.beams", grid=(1.0, 2.0), default=1.0)])
    scheduler = BadRateObjective(slo=OBJECTIVE.slo)

    def has_one(space: KnobSpace, objective: Objective | None, **parameters: str) -> bool:
        agent = RRL(space, RRLParameters(**parameters), objective=objective, synchronous=True)  # type: ignore[arg-type]
        assert isinstance(agent.perception, SmoothPerception)
        return agent.perception.smoother.prior is not None

    assert has_one(SPACE, OBJECTIVE)
    assert not has_one(SPACE, None)
    assert not has_one(SPACE, OBJECTIVE, prior="none")
    assert not has_one(other, OBJECTIVE)
    assert not describable(other)
    assert not estimable(SPACE, scheduler)


def test_it_says_what_its_expectations_rest_on() -> None:
    """On the training, on windows of the configuration or of others, and what it is out of range in."""
    agent, default = RRL(SPACE, objective=OBJECTIVE, synchronous=True), SPACE.encode(SPACE.default)
    assert agent.basis(state(), default) == ""  # no executions were seen

    agent.update(state(), default, 0.8, state())

    assert agent.basis(state(), default) == "pre-trained, and measured here"
    assert agent.basis(state(), default + 1) == "pre-trained, corrected by 1 window here"
    slow = State(level=1, configuration=default, rate=1e-6, seen=seen(rate=1e-6))
    assert "pre-trained on servers unlike this one in" in agent.basis(slow, default)
    assert "load" in agent.unlike(slow)
    assert not RRL(SPACE, synchronous=True).unlike(state())


def test_the_first_step_is_no_gamble() -> None:
    """A server that keeps its SLO by far is not left for what may break it; one that breaks it is."""
    agent = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    default = SPACE.encode(SPACE.default)
    agent.update(state(), default, 0.2, state())
    assert agent.select(state()) == default

    broken = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    late = state(p95=0.9, mean=0.5, p50=0.5, p99=1.0, queue_mean=0.45)
    broken.update(late, default, 20.0, late)
    assert broken.select(late) != default


def test_gambles_are_not_explored_and_the_first_window_at_a_load_leaves_pessimism() -> None:
    """What may be far dearer is left out. After one window each counts at its worst, later it does not."""
    agent, default = RRL(SPACE, objective=OBJECTIVE, synchronous=True), SPACE.encode(SPACE.default)
    assert isinstance(agent.perception, SmoothPerception)
    for windows in (1, 2):
        agent.update(state(), default, 0.8, state())
        mean, deviation = agent.perception.smoother.predict(state(), SPACE.distinct)

        values = agent.perception.values(state(), SPACE.distinct)

        explored = np.isfinite(values)
        assert explored.tolist() == bearable(mean + deviation, windows=windows).tolist()
        assert 1 < explored.sum() < SPACE.distinct.size
        worst = np.exp(mean + deviation)[explored]
        assert (values[explored] == pytest.approx(worst)) is (windows == 1)


@pytest.mark.parametrize(("goal", "looks_ahead"), [("latency", True), ("strict", True), ("cpu", False)])
def test_the_least_use_is_looked_for_by_optimism(goal: str, looks_ahead: bool) -> None:
    """It is found where costs leap, and there a look ahead leaves the best out."""
    objective = replace(OBJECTIVE, goal=goal)
    agent, default = RRL(SPACE, objective=objective, synchronous=True), SPACE.encode(SPACE.default)
    for _ in range(3):
        agent.update(state(), default, 0.8, state())
    assert isinstance(agent.perception, SmoothPerception)

    values = agent.perception.values(state(), SPACE.distinct)

    mean, deviation = agent.perception.smoother.predict(state(), SPACE.distinct)
    explored = np.isfinite(values)
    optimistic = np.exp(mean - deviation)[explored]
    assert explored.sum() > 1
    assert (values[explored] != pytest.approx(optimistic)) is looks_ahead


def test_what_was_watched_is_saved(tmp_path: Path) -> None:
    """The agent expects the same afterwards, at every load."""
    agent = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    agent.update(state(), SPACE.encode(SPACE.default), 0.8, state())
    low = State(level=16, configuration=0, rate=40.0, seen=seen(rate=40.0, cpu=0.2))
    agent.update(low, 0, 0.5, low)
    agent.save(tmp_path)

    again = RRL.load(tmp_path, SPACE, synchronous=True)

    for level in (16, 22):
        assert again.costs(level) == pytest.approx(agent.costs(level), nan_ok=True)
    assert again.select(state()) == agent.select(state())


def test_a_policy_of_an_older_version_has_one_reference(tmp_path: Path) -> None:
    """In an array of another name and shape."""
    prior = NeuralPrior(SPACE, OBJECTIVE)
    prior.watch(0, seen())
    arrays = prior.arrays()
    arrays["neural_reference"] = arrays.pop("neural_references")[0]

    again = NeuralPrior.stored(StoredArrays(tmp_path, arrays), SPACE)

    assert again is not None
    assert again.at(math.log2(RATE)).mean == pytest.approx(prior.at(math.log2(RATE)).mean)


def test_a_saved_agent_goes_on_with_the_cores_of_its_machine(tmp_path: Path) -> None:
    """A server that moved from 2 cores to 8 has room for more instances; nobody may see how many it has."""
    agent = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    agent.update(state(), SPACE.encode(SPACE.default), 0.8, state())
    agent.save(tmp_path)

    same, moved, unseen = (
        RRL.load(tmp_path, SPACE, objective=OBJECTIVE, cores=cores, synchronous=True).costs(22)
        for cores in (2.0, 8.0, math.nan)
    )

    assert same == pytest.approx(agent.costs(22), nan_ok=True)
    assert unseen == pytest.approx(same)
    two = [n for n in range(SPACE.size) if SPACE.decode(n)["instances"] == 2]
    assert moved[two].mean() < 0.9 * same[two].mean()


def test_a_server_with_other_cores_is_another_machine() -> None:
    """What was measured before it moved bears on a similar one; with as many cores it is the same."""
    agent = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    assert isinstance(agent.perception, SmoothPerception)
    agent.update(state(), SPACE.encode(SPACE.default), 0.8, state())
    measured, eras = agent.perception.smoother.measured, []

    for cores in (2.0, 8.0, 8.0):
        agent.perception.move(cores)
        eras.append(measured.era)

    assert eras == [0, 1, 1]
    assert (len(measured), measured.fresh(22)) == (1, 0)


def test_what_made_a_machine_suspect_is_forgotten_on_another_one() -> None:
    """Else a change there were one that began on the machine before, and its windows counted as of both."""
    agent = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    assert isinstance(agent.perception, SmoothPerception)
    agent.update(state(), SPACE.encode(SPACE.default), 0.8, state())
    agent.perception.drift.above, suspicions = 5.0, []

    for cores in (2.0, 8.0):
        agent.perception.move(cores)
        suspicions.append(agent.perception.drift.above)

    assert suspicions == [5.0, 0.0]


def test_once_the_estimator_knows_the_server_the_process_describes_the_difference() -> None:
    """That varies less than costs do; what was fitted to costs is no beginning for it."""
    agent = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    assert isinstance(agent.perception, SmoothPerception)
    smoother = agent.perception.smoother
    before = math.exp(smoother.theta[-2])

    agent.belief(state())

    assert (before, math.exp(smoother.theta[-2])) == pytest.approx((1.0, 0.15))
    assert smoother.constants.deviation == 0.15


def test_a_saved_agent_that_watched_nothing_still_has_the_estimator(tmp_path: Path) -> None:
    """It is ready with its first window."""
    RRL(SPACE, objective=OBJECTIVE, synchronous=True).save(tmp_path)

    again = RRL.load(tmp_path, SPACE, synchronous=True)

    assert isinstance(again.perception, SmoothPerception)
    assert again.perception.smoother.prior is not None
    assert not again.perception.smoother.prior.ready


def test_a_graph_of_operations_is_described_by_its_threads() -> None:
    """A run with a thread for everything follows from one that was watched with several."""
    model = CPU_MODELS["inception"]
    space = model.space()
    prior = NeuralPrior(space, Objective(slo=Slo(statistic="p95", latency=0.55), cores=model.cores))

    assert prior.watch(space.encode(space.default), seen(compute_mean=0.1, rate=14.0))
    assert prior.knowledge is not None
    assert prior.knowledge.seconds[0] > 0.2
    assert np.isfinite(prior.at(math.log2(14.0)).mean).all()


def test_of_a_graph_of_operations_a_window_is_believed_rather_than_what_was_given() -> None:
    """As in the training: how long it takes with one thread follows from the window that was watched."""
    model = CPU_MODELS["inception"]
    space, objective = model.space(), Objective(slo=Slo(statistic="p95", latency=0.55), cores=model.cores)
    given = NeuralPrior(
        space, objective, knowledge=replace(knowledge(watched=False), cores=float(model.cores))
    )
    alone = NeuralPrior(space, objective)

    for prior in (given, alone):
        prior.watch(space.encode(space.default), seen(compute_mean=0.1, rate=14.0))

    assert given.knowledge is not None
    assert alone.knowledge is not None
    assert given.knowledge.seconds == pytest.approx(alone.knowledge.seconds)


def test_how_many_threads_a_server_chooses_itself_is_unsure() -> None:
    """It may have one for each core or for each hardware thread: those configurations differ in common."""
    model = CPU_MODELS["inception"]
    space, known = model.space(), replace(knowledge(watched=False), cores=10.0)
    chosen, ten = (space.encode(space.default.replace(request_parallelism=value)) for value in (0.0, 10.0))

    shown = estimate(space, known, 14.0)

    assert shown.mean[chosen] == pytest.approx(shown.mean[ten])
    extra = (shown.loadings[chosen] ** 2 - shown.loadings[ten] ** 2).sum(axis=1)
    assert extra == pytest.approx(AUTOMATIC**2, rel=1e-5)  # of single precision
