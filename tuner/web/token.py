"""The bearer token that requests need: where it comes from, and whether one is right."""

from __future__ import annotations

import hmac
from functools import partial
from pathlib import Path

from tuner.adapters.connection.credentials import LARGEST_TOKEN, check_private
from tuner.errors import InvalidInput
from tuner.files.renewed import Renewed
from tuner.files.storage import read_file

__all__ = ["SHORTEST_TOKEN", "read_token", "renewed_token", "same_token"]

SHORTEST_TOKEN = 16
"""Characters."""


def read_token(path: Path | None, environment: str | None, setting: str) -> str | None:
    """Return the token that requests need, from a file or else from the environment; None without either.

    Args:
        path: The file.
        environment: The value of ``SERVETUNE_TOKEN``.
        setting: The setting that names the file.

    Raises:
        InvalidInput: The token is too short, or its file is empty, cannot be read, or everybody can read it.
    """
    where, token = "SERVETUNE_TOKEN", environment
    if path is not None:
        where = f"{setting} {path}"
        try:
            token = read_file(path, LARGEST_TOKEN).decode()
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "is no text"
            raise InvalidInput(where, f"cannot be read: {problem}") from None
        check_private(path, setting)
    token = (token or "").strip()
    if not token and path is not None:
        raise InvalidInput(where, "is empty", "make one with: openssl rand -hex 32")
    if not token:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise InvalidInput(
            where, f"needs at least {SHORTEST_TOKEN} ASCII characters", "make one with: openssl rand -hex 32"
        )
    return token


def renewed_token(path: Path | None, environment: str | None, setting: str) -> Renewed[str | None]:
    """Return the token that :func:`read_token` reads, and reads again when its file has changed.

    Raises:
        InvalidInput: As there.
    """
    return Renewed(partial(read_token, path, environment, setting), [path] if path is not None else [])


def same_token(given: str, expected: str) -> bool:
    """Return whether a token is the one expected. How long it takes tells nothing about either."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
