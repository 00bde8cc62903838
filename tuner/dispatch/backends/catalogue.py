"""Opens the connection to a server from the targets of its models."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.adapters.registry import scheme_of
from tuner.adapters.tfserving.target import SIGNATURE, TFServingTarget
from tuner.adapters.tfserving.target import parse_target as parse_tfserving
from tuner.adapters.triton.target import TritonTarget
from tuner.adapters.triton.target import parse_target as parse_triton
from tuner.dispatch.backends.connection import Connection
from tuner.dispatch.request import ModelForm
from tuner.errors import InvalidInput

__all__ = ["connect", "form_of", "parse_backend"]


def parse_backend(text: str) -> TritonTarget | TFServingTarget:
    """Read the target of a backend.

    Raises:
        InvalidInput: It is malformed, or batches cannot be sent to such a server.
    """
    scheme = scheme_of(text)
    if scheme == "triton":
        return parse_triton(text)
    if scheme == "tfserving":
        return parse_tfserving(text)
    problem = f"batches cannot be sent to {scheme}://"
    raise InvalidInput("TARGET", problem, "use triton://HOST:8001/MODEL or tfserving://HOST:8500/MODEL")


def form_of(target: TritonTarget | TFServingTarget) -> ModelForm:
    """Return what a target asks of its model."""
    if isinstance(target, TritonTarget):
        return ModelForm(version=target.version)
    signature = target.signature if target.signature != SIGNATURE else ""  # the server's own choice
    return ModelForm(label=target.label, signature=signature)


def connect(texts: Sequence[str]) -> Connection:
    """Open the connection to the server of some targets.

    Args:
        texts: Its models, all of them reached in the same way.

    Raises:
        InvalidInput: A target is malformed, or batches cannot be sent to such a server.
        StorageError: A certificate or token cannot be read.
    """
    first = parse_backend(texts[0])
    if isinstance(first, TFServingTarget):
        from tuner.dispatch.backends.tfserving import TFServingConnection

        return TFServingConnection([parse_tfserving(text) for text in texts])
    targets = [parse_triton(text) for text in texts]
    if first.http_port is not None:
        from tuner.dispatch.backends.triton_http import TritonHttpConnection

        return TritonHttpConnection(targets)
    from tuner.dispatch.backends.triton import TritonConnection

    return TritonConnection(targets)
