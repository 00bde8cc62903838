"""Opens a backend from its URL. Third parties add a scheme with the entry point group ``tuner.backends``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint
from typing import cast
from urllib.parse import urlsplit

from tuner.adapters.backend import Backend
from tuner.adapters.connection.address import WHERE_CREDENTIALS_BELONG
from tuner.adapters.connection.credentials import refuse_credentials
from tuner.errors import InvalidInput
from tuner.knobs import Grids
from tuner.plugin import BACKENDS, installed, load

__all__ = ["connect", "scheme_of", "schemes"]

Factory = Callable[[str, Grids], Backend]


def schemes() -> list[str]:
    """Return the URL schemes that are installed."""
    return sorted(_adapters())


@cache
def _adapters() -> dict[str, EntryPoint]:
    """Return what is installed, by scheme. Kept, because finding it takes longer than checking a target."""
    return installed(BACKENDS)


def scheme_of(target: str) -> str:
    """Return the scheme of a target, which names the adapter that opens it.

    Raises:
        InvalidInput: No adapter has it, or the target is malformed or holds credentials.
    """
    refuse_credentials(target, "TARGET", WHERE_CREDENTIALS_BELONG)
    scheme, separator, _ = target.partition("://")
    if not separator or scheme.lower() not in schemes():
        known = ", ".join(f"{name}://" for name in schemes())
        raise InvalidInput(
            "TARGET",
            f"'{target}' has no known scheme",
            f"begin with one of {known} like triton://HOST:8001/MODEL",
        )
    try:
        urlsplit(target)
    except ValueError as error:
        raise InvalidInput("TARGET", f"'{target}': {error}", "an IPv6 address is written [::1]") from None
    return scheme.lower()


def connect(target: str, grids: Grids | None = None) -> Backend:
    """Open a backend.

    Args:
        target: ``scheme://host:port/model?option=value``, such as ``triton://127.0.0.1:8001/mlp?metrics=8002``.
        grids: Grids that replace the adapter's own, by knob name.

    Raises:
        InvalidInput: The URL is malformed or holds credentials, its scheme is unknown, the adapter cannot be
            imported, or a grid is unusable.
        AdapterError: The server cannot be reached.
    """
    factory = cast(Factory, load(_adapters()[scheme_of(target)], "TARGET"))
    return factory(target, grids or {})
