"""Triton Inference Server: the adapter to a running server, and a real one embedded for demo and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.adapters.backend import Backend
from tuner.adapters.registry import Grids

if TYPE_CHECKING:
    from tuner.adapters.triton.backend import TritonBackend
    from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions

__all__ = ["EmbeddedTriton", "TritonBackend", "TritonOptions", "connect"]


def connect(target: str, grids: Grids) -> Backend:
    """Open a model on a Triton server, or on several; the factory that the scheme ``triton`` stands for.

    Args:
        target: ``triton://host:8001/model?metrics=8002``; hosts with commas between them, or a name and
            ``replicas=dns``, for several replicas.
        grids: Grids in place of the default ones, by knob name, and of further ``parameters.KEY``.
    """
    from tuner.adapters.replicas.targets import open_replicas
    from tuner.adapters.triton.ensemble import open_model
    from tuner.adapters.triton.target import FORM

    return open_replicas(target, FORM.port, lambda one: open_model(one, grids))


def __getattr__(name: str) -> Any:  # the backend loads grpc: only who needs it pays
    from importlib import import_module

    homes = {"EmbeddedTriton": "embedded", "TritonOptions": "embedded", "TritonBackend": "backend"}
    if name in homes:
        return getattr(import_module(f"{__name__}.{homes[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
