"""The kinds of server models there are, and the model in a file of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.envs.simulator.model_file import ModelFile, read_values
from tuner.envs.simulator.server import ServerModel
from tuner.envs.simulator.tfserving_cpu import TFServingCPU
from tuner.envs.simulator.tfserving_gpu import TFServingGPU
from tuner.errors import InvalidInput

__all__ = ["KINDS", "AnyModel", "expect_kind", "load_model", "model_from_json"]

AnyModel = ServerModel | TFServingCPU | TFServingGPU

KINDS: dict[str, type[ServerModel] | type[TFServingCPU] | type[TFServingGPU]] = {
    "triton": ServerModel,
    "tfserving_cpu": TFServingCPU,
    "tfserving_gpu": TFServingGPU,
}
"""Server models by what a file's ``kind`` calls them; a file that does not say is of the first."""


def load_model(path: Path) -> AnyModel:
    """Read a server model of any kind.

    Raises:
        InvalidInput: There is no such file, its kind is unknown, or a field is unusable.
    """
    return _kind(read_values(path), str(path)).load(path)


def model_from_json(values: Mapping[str, Any], source: str = "server") -> AnyModel:
    """Read the plain values of a server model of any kind.

    Raises:
        InvalidInput: The kind is unknown, or a field is unusable.
    """
    return _kind(values, source).from_json(values, source)


def _kind(
    values: Mapping[str, Any], source: str
) -> type[ServerModel] | type[TFServingCPU] | type[TFServingGPU]:
    kind = values.get("kind", next(iter(KINDS)))
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput(f"{source} kind", f"{kind!r} is unknown", f"use {', '.join(KINDS)}")
    return KINDS[kind]


def expect_kind(model: object, kind: type[ModelFile]) -> None:
    """Check that a model is of the kind that an environment simulates.

    Raises:
        InvalidInput: It is not.
    """
    if not isinstance(model, kind):
        found = getattr(model, "kind", type(model).__name__)
        wanted = next(name for name, one in KINDS.items() if one is kind)
        raise InvalidInput(
            "--server", f"it is a model of {found}, not of {wanted}", "use another environment"
        )
