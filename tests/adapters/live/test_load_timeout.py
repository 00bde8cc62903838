"""Models that take minutes to load: how long a change waits for one is an option of the target."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.live.test_backend import ToyBackend, ToyServer
from tests.adapters.tfserving.versions.test_knobs import WANTED, Server, base
from tests.adapters.triton.test_change import AFTER, BEFORE, FakeControl
from tuner.adapters.connection.target import LiveTarget
from tuner.adapters.live import waiting
from tuner.adapters.tfserving import target as tfserving
from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.versions.folders import Versions
from tuner.adapters.tfserving.versions.knobs import VersionKnobs
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.adapters.triton import target as triton
from tuner.adapters.triton.change import change
from tuner.errors import InvalidInput, Refused, TimedOut

__all__ = ["base"]

SCHEMES: dict[str, Callable[[str], LiveTarget]] = {
    "triton": triton.parse_target,
    "tfserving": tfserving.parse_target,
}


class Clock:
    """A clock that waiting moves on, in the place of the module ``time``."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(waiting, "time", found)
    return found


class SlowServer(Server):
    """A TensorFlow Serving that takes a while to load a version, or does not look at the folder at all.

    Args:
        base: The model's folder.
        clock: The time.
        takes: How long it loads the second version, s.
        looks: Whether it looks at the folder.
    """

    def __init__(self, base: Path, clock: Clock, takes: float, *, looks: bool = True) -> None:
        super().__init__(base)
        self._clock, self._takes, self._looks = clock, takes, looks

    def _loaded(self) -> bool:
        return self._clock.now >= self._takes

    def serving(self) -> int:
        return max(self._folder.numbers()) if self._looks and self._loaded() else 1

    def versions(self) -> dict[int, VersionStatus]:
        found = super().versions()
        if 2 in found and not self._loaded():
            found[2] = VersionStatus(VersionState.LOADING, "")
        return found if self._looks else {1: found[1]}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_target_says_how_long_loading_may_take(scheme: str) -> None:
    """A minute, unless it says more."""
    read = SCHEMES[scheme]

    assert read(f"{scheme}://host/m").load_timeout == 60.0
    assert read(f"{scheme}://host/m?load_timeout=5m").load_timeout == 300.0


@pytest.mark.parametrize(
    ("value", "words"),
    [("300", "is not a duration"), ("0s", "is not between 1s and 1h"), ("2h", "is not between 1s and 1h")],
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_no_time_to_load_is_refused(scheme: str, value: str, words: str) -> None:
    """With the option's name."""
    with pytest.raises(InvalidInput, match=f"load_timeout.*{words}"):
        SCHEMES[scheme](f"{scheme}://host/m?load_timeout={value}")


@pytest.mark.parametrize("timeout", [0.1, 60.0, 900.0, 3599.0])
def test_the_advice_is_a_longer_time_that_a_target_may_say(timeout: float) -> None:
    """Whoever follows it gets no error."""
    option = re.search(r"load_timeout=\S+", waiting.longer(timeout))

    assert option is not None
    assert triton.parse_target(f"triton://host/m?{option[0]}").load_timeout > timeout


def test_whoever_waits_as_long_as_possible_is_told_so() -> None:
    assert waiting.longer(3600.0) == "load_timeout=3600s is the longest that a target may say"


def test_a_backend_waits_as_long_as_its_target_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any adapter that is made of the shared half."""
    assert ToyBackend(ToyServer()).load_timeout == 60.0

    monkeypatch.setattr(ToyBackend, "target", "toy://host/model?load_timeout=10m")
    assert ToyBackend(ToyServer()).load_timeout == 600.0


def test_a_version_that_loads_for_minutes_comes_to_serve(base: Path, clock: Clock) -> None:
    """If the target gives it the time."""
    knobs = VersionKnobs(SlowServer(base, clock, 150.0), Versions(base), Steering(), 300.0)

    knobs.write(WANTED)

    assert Versions(base).numbers() == [1, 2]
    assert 150.0 <= clock.now < 160.0


def test_a_version_that_loads_for_too_long_names_the_option(base: Path, clock: Clock) -> None:
    """It is removed, and the message says what to write."""
    knobs = VersionKnobs(SlowServer(base, clock, 150.0), Versions(base), Steering(), 60.0)

    with pytest.raises(Refused, match=r"within 60 s.*write load_timeout=300s in the target"):
        knobs.write(WANTED)

    assert Versions(base).numbers() == [1]


def test_a_version_that_the_server_does_not_look_at_is_given_up_after_a_minute(
    base: Path, clock: Clock
) -> None:
    """However long loading may take: it has not begun."""
    server = SlowServer(base, clock, 0.0, looks=False)
    knobs = VersionKnobs(server, Versions(base), Steering(), 1800.0)

    with pytest.raises(Refused, match=r"within 60 s.*has not looked at it"):
        knobs.write(WANTED)

    assert clock.now < 70.0
    assert Versions(base).numbers() == [1]


def test_a_triton_that_loads_for_too_long_names_the_option(clock: Clock) -> None:
    """It may still come to run the change, and says that, too."""

    class Slow(FakeControl):
        def load(self, config: dict[str, Any], timeout: float) -> None:
            clock.sleep(timeout)
            raise TimedOut("no answer in time")

    with pytest.raises(TimedOut, match=r"within 90 s; it may still do so.*load_timeout=300s in the target"):
        change(Slow(), BEFORE, AFTER, 60.0)
