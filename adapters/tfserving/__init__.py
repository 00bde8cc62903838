"""TensorFlow Serving: the adapter to a running server, and one embedded for demo and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.adapters.registry import Grids

if TYPE_CHECKING:
    from tuner.adapters.tfserving.backend import TFServingBackend

__all__ = ["TFServingBackend", "connect"]


def connect(target: str, grids: Grids) -> TFServingBackend:
    """Open a model on a TensorFlow Serving server; the factory that the scheme ``tfserving`` stands for.

    Args:
        target: ``tfserving://host:8500/model?rest=8501&base_path=/models/model``.
        grids: Grids in place of the default ones, by knob name, and of further knobs.
    """
    from tuner.adapters.tfserving.backend import TFServingBackend

    return TFServingBackend(target, grids)


def __getattr__(name: str) -> Any:  # the backend loads grpc: only who needs it pays
    from importlib import import_module

    homes = {"TFServingBackend": "backend"}
    if name in homes:
        return getattr(import_module(f"{__name__}.{homes[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
