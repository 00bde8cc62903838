"""The permission to send a request now."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.dispatch.grant import LONGEST_PROBLEM
from tuner.dispatch.request import ModelForm, Status, TraceContext

__all__ = ["Granted"]


@dataclass(slots=True)
class Granted:
    """Where a request may be sent, now."""

    backend: str
    """As ``scheme://host:port``."""
    model: str
    """The backend's name of the model."""
    timeout: float
    """s from the grant until the answer is worthless."""
    trace: TraceContext | None = None
    """The span that the request belongs to: its headers go with it; None if it is not traced."""
    form: ModelForm = field(default_factory=ModelForm)
    """Which version, by number or label, and which signature of the model is asked for; the backend chooses
    what is empty."""
    problem: str = field(default="", init=False)
    """Why the backend could not be asked; empty if it could."""
    refusal: Status | None = field(default=None, init=False)
    """Of which kind the error is that the backend answered with; None without one."""
    unanswered: bool = field(default=False, init=False)
    """Whether the answer did not come in time."""

    @property
    def address(self) -> str:
        """The backend as ``host:port``."""
        return self.backend.partition("://")[2]

    def lost(self, reason: str | Exception) -> None:
        """Say that the backend did not answer: the dispatcher looks whether it is still there."""
        self.problem = str(reason)[:LONGEST_PROBLEM] or "no answer"

    def refused(self, status: Status) -> None:
        """Say that the backend answered with an error, and of which kind that is."""
        self.refusal = status
