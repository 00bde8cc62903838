"""Where a run stands: what must survive a crash of the server or of the tuner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tuner.control.decide.event import Banned
from tuner.files.stored import Part, Stored
from tuner.knobs import Configuration, KnobSpace

__all__ = ["RunState", "StoredBan"]


class StoredBan(Part):
    """A configuration that is not to be tried again yet; see :class:`~tuner.control.decide.event.Banned`."""

    level: int | None
    configuration: dict[str, float]
    windows: int
    times: int

    @classmethod
    def of(cls, ban: Banned) -> StoredBan:
        """Return a ban as it is stored."""
        level, one, windows, times = ban
        return cls(level=level, configuration=dict(one), windows=windows, times=times)

    def completed(self, space: KnobSpace, running: Mapping[str, float]) -> StoredBan:
        """Return the ban with a value on the grid for each knob; see :meth:`RunState.completed`."""
        return self.model_copy(update={"configuration": dict(space.completed(self.configuration, running))})

    def event(self) -> Banned:
        """Return what a loop of a later life observes."""
        return Banned(self.level, Configuration(self.configuration), self.windows, self.times)


class RunState(Stored):
    """The configurations of a target that matter for its next life, and the number of windows so far."""

    what: ClassVar[str] = "state file"

    version: int = 1
    target: str
    original: dict[str, float]
    """What the server ran when the tuner attached for the first time."""
    current: dict[str, float]
    last_good: dict[str, float] | None = None
    window: int = 0
    bans: tuple[StoredBan, ...] = ()

    def completed(self, space: KnobSpace, running: Mapping[str, float]) -> RunState:
        """Return the state with a value for each knob, also for those that were added since.

        Nobody but their owner has turned those yet: they have run since the beginning as they run now.

        Args:
            space: The knobs.
            running: What the target runs now.
        """
        good = self.last_good
        changes = {
            "original": {**running, **self.original},
            "current": {name: self.current.get(name, value) for name, value in running.items()},
            "last_good": {**running, **good} if good is not None else None,
            "bans": tuple(ban.completed(space, running) for ban in self.bans),
        }
        return self.model_copy(update=changes)
