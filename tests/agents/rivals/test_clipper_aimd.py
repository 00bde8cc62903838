"""Additive increase and multiplicative decrease of one knob."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.agents.bed import HIGH, LOW, RATES, make_space, surface, windows_to_near
from tuner.agents import State
from tuner.agents.rivals.clipper_aimd import AimdParameters, ClipperAimd
from tuner.knobs import Knob, KnobSpace, Role

SPACE = make_space()


def line(*grid: float, role: Role = Role.BATCH, default: float = 1.0) -> KnobSpace:
    """A space of a knob with that role, called `size`, and one without a role before it."""
    return KnobSpace(
        [
            Knob(name="threads", grid=(1, 2), default=2),
            Knob(name="size", grid=grid, default=default, role=role),
        ]
    )


def follow(
    space: KnobSpace, costs: Callable[[float], float], windows: int, parameters: AimdParameters | None = None
) -> list[float]:
    """The values of the knob that it goes through, where a value costs what the function says."""
    agent, values = ClipperAimd(space, parameters), []
    state = State(level=LOW, configuration=space.encode(space.default))
    for _ in range(windows):
        number = agent.select(state)
        value = space.decode(number)[agent.knob]
        state = State(level=LOW, configuration=number)
        agent.update(state, number, costs(value), state)
        values.append(value)
    return values


def test_rises_step_by_step_until_the_slo_breaks() -> None:
    """Then one step down, and up again: Clipper's saw."""
    saw = follow(line(1, 2, 4, 8, 16, 32), lambda batch: 0.1 * batch, 8)

    assert saw == [1, 2, 4, 8, 16, 8, 16, 8]


def test_falls_by_a_tenth_on_a_fine_grid() -> None:
    """From 41 requests, which are too many, to 36, the largest value at most 10 % less."""
    fine = line(*range(1, 65), default=39)

    assert follow(fine, lambda batch: batch / 40, 5) == [39, 40, 41, 36, 37]


def test_other_knobs_stay_at_the_start() -> None:
    """Threads are 2 by default."""
    space = line(1, 2, 4)
    agent = ClipperAimd(space)

    assert all(
        space.decode(agent.select(State(level=LOW, configuration=c)))["threads"] == 2 for c in range(6)
    )


@pytest.mark.parametrize(
    ("role", "grid", "expected"),
    [(Role.PARALLELISM, (0, 1, 2, 3), [1, 2, 3]), (Role.BATCH, (0, 1, 2, 4, 8), [1, 2, 4])],
)
def test_values_that_mean_automatic_are_left_out(
    role: Role, grid: tuple[float, ...], expected: list[float]
) -> None:
    """0 is as many as cores, or no cap: it is not the least."""
    assert follow(line(*grid, role=role, default=0), lambda _: 0.5, 3) == expected


def test_the_batch_comes_before_the_parallelism() -> None:
    """Whatever the order of the knobs."""
    parallelism, batch = (
        Knob(name=r, grid=(1, 2), default=1, role=r) for r in (Role.PARALLELISM, Role.BATCH)
    )

    assert ClipperAimd(KnobSpace([parallelism, batch])).knob == "batch"
    assert ClipperAimd(KnobSpace([parallelism])).knob == "parallelism"


def test_new_load_begins_where_the_nearest_stands() -> None:
    """And each load keeps its own limit."""
    space = line(1, 2, 4, 8, 16, 32)
    agent = ClipperAimd(space)
    for _ in range(3):
        low = State(level=LOW, configuration=agent.select(State(level=LOW, configuration=0)))
        agent.update(low, low.configuration, 0.5, low)

    assert space.decode(agent.select(State(level=HIGH, configuration=0)))["size"] == 8
    high = State(level=HIGH, configuration=agent.select(State(level=HIGH, configuration=0)))
    agent.update(high, high.configuration, 2.0, high)
    assert space.decode(agent.select(State(level=HIGH, configuration=0)))["size"] == 4
    assert space.decode(agent.select(State(level=LOW, configuration=0)))["size"] == 8


def test_finds_the_batch_where_the_batch_is_all_that_matters() -> None:
    """At low load the bed's start is nearly right, and growing batches show that."""
    found = windows_to_near(ClipperAimd(SPACE), SPACE, surface(SPACE, RATES[LOW]), LOW, seed=0, windows=30)

    assert found[0] <= 10


def test_spaces_without_a_batch() -> None:
    """The first knob is turned; without knobs there is nothing to turn."""
    assert ClipperAimd(KnobSpace([Knob(name="x", grid=(1, 2), default=1)])).knob == "x"
    nothing = ClipperAimd(KnobSpace([]))
    state = State(level=LOW, configuration=0)
    nothing.update(state, 0, 0.5, state)

    assert nothing.select(state) == 0


def test_a_first_knob_without_a_role_is_turned_whatever_its_values_are() -> None:
    """Seconds below 1 mean nothing but themselves; after the largest, which breaks the SLO, one step down."""
    delays = KnobSpace([Knob(name="delay", grid=(0, 0.001, 0.002), default=0, unit="s")])

    assert follow(delays, lambda delay: 600 * delay, 4) == [0, 0.001, 0.002, 0.001]


@pytest.mark.parametrize("wrong", [{"increase": 0.0}, {"decrease": 1.0}, {"noise": -1.0}])
def test_constants_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """The message says the rule and the values."""
    with pytest.raises(ValueError, match="must be"):
        AimdParameters(**wrong)
