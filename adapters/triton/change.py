"""Changes a model's configuration: all of it or nothing, verified by reading back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tuner.adapters.live.waiting import comes_true, longer
from tuner.adapters.triton.batching import BATCHING
from tuner.adapters.triton.configuration import ModelConfig, normal_form
from tuner.errors import AdapterError, Refused, StillLoading, TimedOut

__all__ = ["ADDED", "AddsBatching", "ModelControl", "Reader", "change", "runs_with_batching", "serves"]

POLL = 0.2
"""How often the server is asked whether it has made a late change, s."""
ADDED = (
    "this Triton adds dynamic batching by itself, so it cannot run without (a batch of 1): start it with "
    "--disable-auto-complete-config, or use batches of 2 and more"
)


class AddsBatching(Refused):
    """The server completes a configuration without dynamic batching by adding it; the old one serves."""


class Reader(Protocol):
    """What a server says of one model."""

    def config(self) -> ModelConfig:
        """Return the model's whole configuration."""
        ...

    def ready(self) -> bool:
        """Whether the model answers requests."""
        ...


class ModelControl(Reader, Protocol):
    """What a change needs of a server."""

    def load(self, config: ModelConfig, timeout: float) -> None:
        """Have the server run the model with a configuration, within ``timeout`` s."""
        ...


def change(control: ModelControl, before: ModelConfig, after: ModelConfig, timeout: float) -> None:
    """Have the server go from one configuration to another.

    Args:
        control: The server.
        before: What it runs now. It is put back if the server accepts the other but then runs something else.
        after: What it should run.
        timeout: Longest wait, s.

    Raises:
        ReadOnly: The server takes no changes.
        Refused: It refused, or runs something else by now. What it ran serves: ``before``, or what somebody
            else has loaded meanwhile.
        AddsBatching: It cannot run without dynamic batching. ``before`` serves.
        StillLoading: It did not finish, and may do so later.
        TimedOut: It did not answer in time.
        AdapterError: It does not answer, or serves neither configuration.
    """
    if normal_form(control.config()) != normal_form(before):  # it may be another model by now
        raise Refused("somebody else has just loaded another configuration, which serves")
    try:
        control.load(after, timeout)
    except Refused as refusal:
        running, is_ready = normal_form(control.config()), control.ready()
        if is_ready and running not in (normal_form(before), normal_form(after)):
            raise Refused(f"{refusal}; what somebody else has loaded meanwhile serves") from refusal
        if not is_ready or running != normal_form(before):
            _put_back(control, before, timeout, str(refusal))
        raise Refused(f"{refusal}; the old configuration still serves") from refusal
    except TimedOut as late:
        # A server under load may answer late, or not at all for a while, and load the model nevertheless.
        if comes_true(lambda: serves(control, after), timeout / 2, poll=POLL, despite=(AdapterError,)):
            return
        problem = f"Triton did not load the changed model within {1.5 * timeout:g} s"
        raise StillLoading(f"{problem}; it may still do so; {longer(timeout)}") from late
    if not serves(control, after):
        kind, problem = Refused, "Triton accepted the configuration but runs another"
        if runs_with_batching(control, after):
            kind, problem = AddsBatching, ADDED
        if serves(control, before):
            raise kind(f"{problem}; the old one still serves")
        _put_back(control, before, timeout, problem)
        raise kind(f"{problem}; the old one was put back")


def serves(control: Reader, config: Mapping[str, Any]) -> bool:
    """Whether the server runs a configuration, in every field, and the model answers."""
    return normal_form(control.config()) == normal_form(config) and control.ready()


def runs_with_batching(control: Reader, config: Mapping[str, Any]) -> bool:
    """Whether the server runs a configuration without dynamic batching, and has added that by itself."""
    completed = normal_form({**config, BATCHING: {}})
    return BATCHING not in config and normal_form(control.config()) == completed and control.ready()


def _put_back(control: ModelControl, before: ModelConfig, timeout: float, why: str) -> None:
    try:
        control.load(before, timeout)
    except AdapterError as error:
        raise AdapterError(f"{why}; putting the old configuration back failed, too: {error}") from error
    if not serves(control, before):
        raise AdapterError(f"{why}; the old configuration could not be put back")
