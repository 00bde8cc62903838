"""Opens a model on one Triton server, as itself or as an ensemble of its models."""

from __future__ import annotations

from contextlib import closing

from tuner.adapters.backend import Backend
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.client import TritonClient
from tuner.adapters.triton.configuration import is_ensemble
from tuner.adapters.triton.ensemble import EnsembleBackend
from tuner.adapters.triton.target import parse_target
from tuner.knobs import Grids

__all__ = ["open_model"]


def open_model(target: str, grids: Grids) -> Backend:
    """Open a model; an ensemble has the knobs of the models that it is made of.

    Raises:
        InvalidInput: The target or a grid cannot be used.
        AdapterError: The server cannot be asked.
    """
    parsed = parse_target(target)
    with closing(TritonClient(parsed)) as client:
        client.identity()
        composed = is_ensemble(client.config())
    return EnsembleBackend(TritonBackend(target), grids) if composed else TritonBackend(target, grids)
