"""Changes a model's configuration: all of it or nothing, verified by reading back."""

from __future__ import annotations

from typing import Protocol

import tenacity

from tuner.adapters.triton.configuration import ModelConfig, normal_form
from tuner.errors import AdapterError, Refused, TimedOut

__all__ = ["ModelControl", "change"]

POLL = 0.2
"""How often the server is asked whether a late change has come about, s."""


class ModelControl(Protocol):
    """What a change needs of a server."""

    def config(self) -> ModelConfig:
        """Return the model's whole configuration."""
        ...

    def ready(self) -> bool:
        """Whether the model answers requests."""
        ...

    def load(self, config: ModelConfig, timeout: float) -> None:
        """Have the server run the model with a configuration, within ``timeout`` s."""
        ...


def change(control: ModelControl, before: ModelConfig, after: ModelConfig, timeout: float) -> None:
    """Have the server go from one configuration to another.

    Args:
        control: The server.
        before: What it runs; put back if it accepts the other but runs something else.
        after: What it shall run.
        timeout: Longest wait, s.

    Raises:
        ReadOnly: The server takes no changes.
        Refused: It refused; ``before`` serves.
        TimedOut: It did not finish; it may do so later.
        AdapterError: It does not answer, or neither configuration serves.
    """
    try:
        control.load(after, timeout)
    except Refused as refusal:
        _put_back(control, before, timeout, str(refusal))
        raise Refused(f"{refusal}; the old configuration still serves") from refusal
    except TimedOut as late:
        if _comes_to_serve(control, after, timeout / 2):
            return
        problem = f"Triton did not load the changed model within {1.5 * timeout:g} s"
        raise TimedOut(f"{problem}; it may still do so") from late
    if not _serves(control, after):
        problem = "Triton accepted the configuration but runs another"
        _put_back(control, before, timeout, problem)
        raise Refused(f"{problem}; the old one was put back")


def _serves(control: ModelControl, config: ModelConfig) -> bool:
    """Whether the server runs this, in every field, and answers."""
    return normal_form(control.config()) == normal_form(config) and control.ready()


def _comes_to_serve(control: ModelControl, config: ModelConfig, patience: float) -> bool:
    patiently = tenacity.Retrying(
        stop=tenacity.stop_after_delay(patience),
        wait=tenacity.wait_fixed(POLL),
        retry=tenacity.retry_if_result(lambda serves: not serves)
        | tenacity.retry_if_exception_type(AdapterError),
    )
    try:
        return bool(patiently(_serves, control, config))
    except tenacity.RetryError:
        return False


def _put_back(control: ModelControl, before: ModelConfig, timeout: float, why: str) -> None:
    if _serves(control, before):
        return
    try:
        control.load(before, timeout)
    except AdapterError as error:
        raise AdapterError(f"{why}; putting the old configuration back failed, too: {error}") from error
    if not _serves(control, before):
        raise AdapterError(f"{why}; the old configuration could not be put back")
