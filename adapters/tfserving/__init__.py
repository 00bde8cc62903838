"""TensorFlow Serving: the adapter to a running server, and one embedded for demo and tests."""

from __future__ import annotations

from tuner.adapters.backend import Backend
from tuner.knobs import Grids

__all__ = ["connect"]


def connect(target: str, grids: Grids) -> Backend:
    """Open a model on a TensorFlow Serving server: the factory of the scheme ``tfserving``.

    Args:
        target: ``tfserving://host:8500/model?rest=8501&base_path=/models/model``.
        grids: Grids in place of the default ones, by knob name, and of further knobs.
    """
    # It imports grpc, which takes a third of a second; a command that opens no server should not wait for it.
    from tuner.adapters.tfserving.backend import TFServingBackend

    return TFServingBackend(target, grids)
