"""What a backend may notice of its model: that it is no longer the one that was opened."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Deployed", "deployed_anew"]


@runtime_checkable
class Deployed(Protocol):
    """A backend that notices when its model is deployed anew, so that the knobs it has found do not hold."""

    @property
    def deployed_anew(self) -> str:
        """How it differs from the model that was opened, as far as it was asked; empty if it does not."""
        ...


def deployed_anew(backend: object) -> str:
    """Return how the model of a backend differs from the one that was opened; empty if nobody knows."""
    return backend.deployed_anew if isinstance(backend, Deployed) else ""
