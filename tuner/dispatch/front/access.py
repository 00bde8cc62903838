"""Decides who may ask: where there is a token, those who send it."""

from __future__ import annotations

from tuner.web.token import same_token

__all__ = ["TOKEN_NEEDED", "allowed"]

TOKEN_NEEDED = "the token is missing or wrong; send it as 'authorization: Bearer TOKEN'"


def allowed(authorization: str | None, token: str | None) -> bool:
    """Return whether a request may ask.

    Args:
        authorization: Its header of this name.
        token: The one that requests need; everybody may ask if None.
    """
    if token is None:
        return True
    scheme, _, given = (authorization or "").partition(" ")
    return same_token(given.strip(), token) and scheme.lower() == "bearer"
