"""Decides who may ask: where there is a token, those who send it."""

from __future__ import annotations

from tuner.adapters.connection.identity import Identity
from tuner.web.token import same_token

__all__ = ["TOKEN_NEEDED", "Access"]

TOKEN_NEEDED = "the token is missing or wrong; send it as 'authorization: Bearer TOKEN'"


class Access:
    """Decides who may ask, and how they are connected. Both may change while clients are connected.

    Args:
        token: The one that requests need; everybody may ask if None.
        identity: What the fronts show to new connections, and whom they let in; in the clear if None.
    """

    def __init__(self, token: str | None, identity: Identity | None = None) -> None:
        self.token = token
        self.identity = identity

    def allows(self, authorization: str | None) -> bool:
        """Return whether a request may ask.

        Args:
            authorization: Its header of this name.
        """
        if self.token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        return same_token(given.strip(), self.token) and scheme.lower() == "bearer"
