"""Triton Inference Server: the adapter to a running server, and a real one embedded for demo and tests."""

from __future__ import annotations

from tuner.adapters.backend import Backend
from tuner.knobs import Grids

__all__ = ["connect"]


def connect(target: str, grids: Grids) -> Backend:
    """Open a model on a Triton server, or on several: the factory of the scheme ``triton``.

    Args:
        target: ``triton://host:8001/model?metrics=8002``. Several replicas are hosts with commas between
            them, or a name and ``replicas=dns``.
        grids: Grids in place of the default ones, by knob name, and of further ``parameters.KEY``.
    """
    # These import grpc, which takes a third of a second: a command that opens no Triton should not wait.
    from tuner.adapters.replicas.targets import open_replicas
    from tuner.adapters.triton.opening import open_model
    from tuner.adapters.triton.target import FORM

    return open_replicas(target, FORM.port, lambda one: open_model(one, grids))
