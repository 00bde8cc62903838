"""The file of ``tuner plan replay --models``: what is known of the models of a replay log."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import Field
from pydantic import field_validator as check_field

from tuner.files.schema import NotNegative, Some, StrictPart
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

    models: Annotated[tuple[LoggedModel, ...], Some]

    @check_field("models")
    @classmethod
    def _names_differ(cls, models: tuple[LoggedModel, ...]) -> tuple[LoggedModel, ...]:
        name, times = Counter(model.name for model in models).most_common(1)[0]
        if times > 1:
            raise ValueError(f"{name!r} is the name of {times} models; give each its own")
        return models

    def by_name(self) -> dict[str, ReplayedModel]:
        """Return what a replay needs of each model."""
        return {
            model.name: ReplayedModel(model.latency(LONGEST), model.load_ms / 1e3) for model in self.models
        }
