"""The file of ``tuner plan replay --models``: what is known of the models of a replay log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner.files.schema import NamedOnce, NotNegative, Some, StrictPart
from tuner.planning.packing.form import LoadProfile
from tuner.planning.rounds.simulation import ReplayedModel

__all__ = ["ModelsFile"]

LONGEST = 1e5
"""s; no batch of a profile that is a line takes longer."""


class LoggedModel(LoadProfile):
    """A model with its profile."""

    name: str = Field(min_length=1)
    load_ms: NotNegative = 500.0
    """To load it onto an accelerator."""


class ModelsFile(StrictPart):
    """The models of a log."""

    models: Annotated[tuple[LoggedModel, ...], Some, NamedOnce]

    def by_name(self) -> dict[str, ReplayedModel]:
        """Return what a replay needs of each model."""
        return {
            model.name: ReplayedModel(model.latency(LONGEST), model.load_ms / 1e3) for model in self.models
        }
