"""The file of ``tuner plan partition``: models with rate and memory, sub-clusters, and what ran before."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model
from pydantic_core import InitErrorDetails

from tuner.files.json_text import parse_json
from tuner.files.schema import NamedOnce, NotNegative, Positive, Some, StrictPart, file_beside, mistake
from tuner.planning.packing.plan import MIB
from tuner.planning.partition.problem import NOWHERE, PartitionProblem, imbalance
from tuner.planning.partition.solver import Partition
from tuner.rounding import ROUNDING

__all__ = ["PartitionFile", "PartitionModel"]

MOST_MODELS = 100_000
Count = Annotated[int, Field(strict=True, ge=1, le=10_000)]
Finite = Annotated[NotNegative, Field(le=1e12)]


class PartitionModel(StrictPart):
    """A model that every accelerator of its sub-cluster loads."""

    name: str = Field(min_length=1)
    rate: Finite
    """Requests/s."""
    memory_mib: Finite = 0.0
    runtime_mib: Finite = 0.0
    """Further memory while it executes."""
    move_cost: Finite = 1.0
    """Of loading it, and of unloading it."""


class PartitionFile(StrictPart):
    """What is to be divided."""

    partitions: Count
    """How many sub-clusters."""
    memory_mib: Positive | None = None
    """Of an accelerator."""
    max_rate: Positive | None = None
    """Requests/s that the dispatcher of one sub-cluster can do."""
    memory_weight: NotNegative = 1.0
    """What the imbalance of the memory counts beside that of the rate."""
    max_disruption: NotNegative | None = None
    """Costs of loading and unloading, at most, if there is a previous assignment."""
    time_limit_s: Annotated[Positive, Field(le=3600)] = 10.0
    models: Annotated[tuple[PartitionModel, ...], Some, NamedOnce, Field(max_length=MOST_MODELS)]
    previous: dict[str, int] | str | None = None
    """The assignment before, ``{model: sub-cluster}``, or the file of a stored partition."""

    @check_field("previous")
    @classmethod
    def _previous_is_read(cls, given: Any, info: ValidationInfo) -> Any:
        if isinstance(given, str):
            path = file_beside(given, info)
            try:
                stored = parse_json(path.read_bytes())["assignment"]
                given = {str(name): int(part) for name, part in stored.items()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
                raise ValueError(f"{path} is no stored partition") from None
        for name, part in (given or {}).items():
            count = info.data.get("partitions", part + 1)
            if not 0 <= part < count:
                problem = f"{name} was in sub-cluster {part}, but there are 0 to {count - 1} now"
                raise ValueError(f"{problem}; leave it out to plan it as a new model")
        return given

    @check_model(mode="after")
    def _models_fit(self) -> PartitionFile:
        wrong: list[InitErrorDetails] = []
        for index, model in enumerate(self.models):
            need = model.memory_mib + model.runtime_mib
            if self.memory_mib is not None and need > self.memory_mib * (1 + ROUNDING):
                text = f"{model.name} needs {need:g} MiB, more than memory_mib, {self.memory_mib:g}"
                wrong.append(mistake(text, "models", index, "memory_mib"))
            if self.max_rate is not None and model.rate > self.max_rate:
                text = f"{model.name} has {model.rate:g} requests/s, more than max_rate, {self.max_rate:g}"
                wrong.append(mistake(text, "models", index, "rate"))
        if wrong:
            raise ValidationError.from_exception_data("models", wrong)
        return self

    def problem(self) -> PartitionProblem:
        """Return what is to be solved."""
        before = self.previous if isinstance(self.previous, dict) else {}
        bounded = self.max_disruption is not None and any(model.name in before for model in self.models)
        return PartitionProblem(
            parts=self.partitions,
            rate=np.array([model.rate for model in self.models]),
            memory=np.array([model.memory_mib for model in self.models]) * MIB,
            runtime=np.array([model.runtime_mib for model in self.models]) * MIB,
            move_cost=np.array([model.move_cost for model in self.models]),
            before=np.array([before.get(model.name, NOWHERE) for model in self.models], np.int64),
            most_rate=np.inf if self.max_rate is None else self.max_rate,
            most_memory=np.inf if self.memory_mib is None else self.memory_mib * MIB,
            most_disruption=self.max_disruption if bounded and self.max_disruption is not None else np.inf,
            memory_weight=self.memory_weight,
        )

    def to_json(self, found: Partition) -> dict[str, Any]:
        """Return the content of ``tuner plan partition --json``."""
        problem = self.problem()
        rate, memory = problem.sums(found.assignment)
        names = (model.name for model in self.models)
        return {
            "assignment": dict(zip(names, found.assignment.tolist(), strict=True)),
            "imbalance": imbalance(rate),
            "memory_imbalance": imbalance(memory),
            "disruption": problem.disruption(found.assignment),
            "seconds": round(found.seconds, 3),
            "optimal": found.optimal,
            "rate": rate.tolist(),
            "memory_mib": (memory / MIB).tolist(),
        }
