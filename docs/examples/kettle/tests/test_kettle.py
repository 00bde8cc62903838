"""What servetune asks of every adapter and of every agent, asked of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from kettle.agent import Corners
from kettle.server import Kettle, serve
from kettle.simulated import SimulatedKettle

from tuner.adapters import Backend, connect
from tuner.agents import State
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, Knob, KnobSpace
from tuner.testing import AgentContract, BackendContract
from tuner.testing.agent import Valley, run


@pytest.fixture
def running() -> Iterator[tuple[str, Kettle]]:
    """A server of this process, and its target."""
    server, port, kettle = serve()
    yield f"kettle://127.0.0.1:{port}/tea", kettle
    server.stop(0)


@pytest.mark.parametrize(
    "target",
    [
        "kettle://127.0.0.1:x/tea",
        "kettle://127.0.0.1:7301",
        "kettle://127.0.0.1:7301/tea?rate=40",
        "kettlesim://tea?rate=many",
        "kettlesim://tea?rate=0",
        "kettlesim://tea?seed=-1",
        "kettlesim://tea?rat=40",
    ],
)
def test_targets_that_cannot_be_used(target: str) -> None:
    """They are refused before any server is asked; the commands print what is wrong in a sentence."""
    with pytest.raises(InvalidInput, match="TARGET: "):
        connect(target)


class TestKettle(BackendContract):
    """The adapter, against the real server."""

    below = -2.0

    @pytest.fixture
    def backend(self, running: tuple[str, Kettle]) -> Iterator[Backend]:
        opened = connect(running[0])
        yield opened
        opened.close()

    @pytest.fixture
    def traffic(self, running: tuple[str, Kettle]) -> Callable[[int], None]:
        def send(count: int) -> None:
            with grpc.insecure_channel(running[0].split("/")[2]) as channel:
                for _ in range(count):
                    channel.unary_unary("/kettle.Kettle/Brew")(b"tea")

        return send

    @pytest.fixture
    def refused(self) -> Configuration:
        """Only the server knows how many workers there can be."""
        return Configuration(tile=1.0, workers=60.0)

    @pytest.fixture
    def restart(self, running: tuple[str, Kettle]) -> Callable[[], None]:
        return lambda: running[1].counts.update(answered=0, nanoseconds=0)


class TestSimulatedKettle(BackendContract):
    """The simulation: requests come when the tests let time pass."""

    below = -2.0

    @pytest.fixture
    def backend(self) -> SimulatedKettle:
        simulated = connect("kettlesim://tea?rate=40")
        assert isinstance(simulated, SimulatedKettle)
        simulated._next = float("inf")
        return simulated

    @pytest.fixture
    def traffic(self, backend: SimulatedKettle) -> Callable[[int], None]:
        def send(count: int) -> None:
            for _ in range(count):
                backend._next = backend.now()
                backend.rate = 1e-9  # the one after it comes in thirty years
                backend.sleep(0.1)

        return send

    def test_a_change_leaves_the_processor_time_of_before(
        self, backend: SimulatedKettle, traffic: Callable[[int], None]
    ) -> None:
        """It never falls: each execution used what it took, whatever tile is set by now."""
        traffic(10)
        before = backend.read().server
        backend.apply(Configuration(tile=4.0, workers=1.0))
        assert before == backend.read().server == pytest.approx(0.30)

        traffic(10)
        assert backend.read().server == pytest.approx(0.39)


class TestCorners(AgentContract):
    """The agent. It looks at corners only, so what it finds may cost three and a half times the least."""

    windows = 20
    near = 3.5

    def make(self, space: KnobSpace, seed: int) -> Any:
        return Corners(space, seed=seed)

    def load(self, folder: Path, space: KnobSpace, seed: int) -> Any:
        return Corners.load(folder, space, seed=seed)

    def test_it_measures_every_corner_and_nothing_else(self, valley: Valley) -> None:
        """Of 6 x 5 x 2 configurations there are eight; knobs have ends of their own."""
        journal = run(self.make(valley.space, 0), valley, 20, 8, seed=0)

        corners = [valley.space.coordinates[window.configuration].tolist() for window in journal]
        assert sorted(corners) == [[a, b, c] for a in (0, 5) for b in (0, 4) for c in (0, 1)]

    def test_corners_that_are_equal_in_effect_are_measured_once(self) -> None:
        """The delay does nothing to batches of one, so its two corners there are one."""
        batch = Knob(name="batch", grid=(1, 2, 4), default=1)
        delay = Knob(name="delay", grid=(0, 1), default=0, idle_when=("batch", 1.0))
        agent, chosen = self.make(KnobSpace([batch, delay]), 0), [0]
        for _ in range(3):
            chosen.append(agent.select(State(level=20, configuration=chosen[-1])))
            state = State(level=20, configuration=chosen[-1])
            agent.update(state, chosen[-1], 0.5, state)

        assert chosen[1:] == [0, 4, 5]
