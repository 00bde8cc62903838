"""Decides who may ask: where there is a token, those who send it."""

from __future__ import annotations

import hmac

__all__ = ["TOKEN_NEEDED", "Access"]

TOKEN_NEEDED = "the token is missing or wrong; send it as 'authorization: Bearer TOKEN'"


class Access:
    """Compares the token of a request with the one that it needs.

    Args:
        token: The one that requests need; anybody may ask if None.
    """

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else token.encode()

    def allows(self, authorization: str | None) -> bool:
        """Return whether a request with this header ``authorization`` is answered."""
        if self._expected is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        # Compared in constant time, so that how long it takes tells nothing about the token.
        right = hmac.compare_digest(given.strip().encode(errors="replace"), self._expected)
        return right and scheme.lower() == "bearer"
