"""All or nothing: what happens when the server refuses, lies or is late."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from tuner.adapters.triton import change as module
from tuner.adapters.triton.change import change
from tuner.errors import AdapterError, ReadOnly, Refused, StillLoading, TimedOut, Unreachable

BEFORE = {"max_batch_size": 8, "name": "m"}
AFTER = {"max_batch_size": 8, "name": "m", "dynamic_batching": {}}


class FakeControl:
    """A server whose answers to ``load`` are scripted: an error, or the configuration it really runs."""

    def __init__(self, *script: AdapterError | dict[str, Any], then: dict[str, Any] | None = None) -> None:
        self.script = list(script)
        self.then = then  # what it runs after an error
        self.running = BEFORE
        self.later: dict[str, Any] | None = None
        self.is_ready = True
        self.loads: list[dict[str, Any]] = []

    def config(self) -> dict[str, Any]:
        running, self.running, self.later = self.running, self.later or self.running, None
        return running

    def ready(self) -> bool:
        return self.is_ready

    def load(self, config: dict[str, Any], timeout: float) -> None:
        self.loads.append(config)
        step = self.script.pop(0) if self.script else None
        if isinstance(step, Exception):
            self.running = self.then or self.running
            raise step
        self.running = config if step is None else step


def test_accepted() -> None:
    """A configuration that reads back as sent is the end of it."""
    control = FakeControl()

    change(control, BEFORE, AFTER, 1.0)

    assert control.loads == [AFTER]


def test_refused() -> None:
    """Nothing more is sent when the old one still serves."""
    control = FakeControl(Refused("Triton refused: no"))

    with pytest.raises(Refused, match="no; the old configuration still serves"):
        change(control, BEFORE, AFTER, 1.0)

    assert control.loads == [AFTER]


@pytest.mark.parametrize("running", [BEFORE, {"max_batch_size": 3}])
def test_refused_and_the_old_one_is_gone(running: dict[str, Any]) -> None:
    """The old one is loaded again."""

    class Gone(FakeControl):
        def ready(self) -> bool:
            return len(self.loads) == 2

    control = Gone(Refused("no"), then=running)

    with pytest.raises(Refused):
        change(control, BEFORE, AFTER, 1.0)

    assert control.loads == [AFTER, BEFORE]


def test_somebody_else_has_just_loaded_another() -> None:
    """It is not overwritten by what was made from the configuration before it."""
    control = FakeControl()
    control.running = {"max_batch_size": 3}

    with pytest.raises(Refused, match="somebody else has just loaded another configuration"):
        change(control, BEFORE, AFTER, 1.0)

    assert control.loads == []


def test_refused_and_somebody_else_has_loaded_another() -> None:
    """The operator's deployment is not replaced by what ran before it."""
    control = FakeControl(Refused("no"), then={"max_batch_size": 3})

    with pytest.raises(Refused, match="what somebody else has loaded meanwhile serves"):
        change(control, BEFORE, AFTER, 1.0)

    assert control.loads == [AFTER]


def test_refused_and_the_old_one_does_not_come_back() -> None:
    """That is worse than a refusal, and is said."""
    control = FakeControl(Refused("no"), Unreachable("gone"))
    control.is_ready = False

    with pytest.raises(AdapterError, match="no; putting the old configuration back failed, too: gone"):
        change(control, BEFORE, AFTER, 1.0)


@pytest.mark.parametrize("running", [{"max_batch_size": 4, "name": "m"}, {**AFTER, "name": "other"}])
def test_accepted_but_not_run(running: dict[str, Any]) -> None:
    """A server that runs something else is put back to what it ran."""
    control = FakeControl(running)

    with pytest.raises(Refused, match="runs another"):
        change(control, BEFORE, AFTER, 1.0)

    assert control.loads == [AFTER, BEFORE]


def test_late_but_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that comes about after the call timed out counts."""
    monkeypatch.setattr(module, "POLL", 0.0)
    control = FakeControl(TimedOut("late"))
    control.later = AFTER

    change(control, BEFORE, AFTER, 1.0)


def test_late_and_not_done() -> None:
    """It is reported, and nothing is sent that could collide with it."""
    control = FakeControl(TimedOut("late"))

    with pytest.raises(StillLoading, match="may still do so"):
        change(control, BEFORE, AFTER, 0.0)

    assert control.loads == [AFTER]


def test_a_server_that_hangs_before_the_change_was_begun_loads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is nothing to wait for."""
    control = FakeControl()

    def hangs() -> NoReturn:
        raise TimedOut("no answer in time")

    monkeypatch.setattr(control, "config", hangs)
    with pytest.raises(TimedOut) as caught:
        change(control, BEFORE, AFTER, 1.0)

    assert not isinstance(caught.value, StillLoading)


def test_read_only() -> None:
    """A server that takes no changes is left alone."""
    control = FakeControl(ReadOnly("flag"))

    with pytest.raises(ReadOnly):
        change(control, BEFORE, AFTER, 1.0)
