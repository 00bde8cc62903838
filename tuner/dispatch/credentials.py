"""What a dispatcher listens with, as its files hold it by now: a certificate, and tokens."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tuner.adapters.connection.identity import Identity, read_identity
from tuner.dispatch.config import ListenSection
from tuner.errors import InvalidInput, StorageError
from tuner.files.renewed import STAYS, Renewed
from tuner.web.token import renewed_token

__all__ = ["Credentials"]


class Credentials:
    """What a dispatcher listens with, renewed by :meth:`look` and :meth:`read`. Both read files.

    Args:
        listen: Names the files.

    Raises:
        InvalidInput: A token cannot be used.
        StorageError: A certificate or its key cannot.
    """

    def __init__(self, listen: ListenSection) -> None:
        files = (listen.certificate, listen.key, listen.client_ca)
        self._identity = Renewed(partial(_identity, *files), filter(None, files))
        self._clients = renewed_token(listen.token_file, None, "listen.token_file")
        self._operators = self._clients
        self._named: dict[str, Renewed[Identity | None] | Renewed[str | None]] = {
            "listen.certificate": self._identity,
            "listen.token_file": self._clients,
        }
        if listen.control_token_file is not None:
            name = "listen.control_token_file"
            self._named[name] = self._operators = renewed_token(listen.control_token_file, None, name)

    @property
    def identity(self) -> Identity | None:
        """The certificate, and who must have certified clients; None without TLS."""
        return self._identity.value

    @property
    def clients(self) -> str | None:
        """The token that every client must send; None if they need none."""
        return self._clients.value

    @property
    def operators(self) -> str | None:
        """The token that changes on the control port need; None if nothing can be changed there."""
        return self._operators.value

    def look(self) -> list[str]:
        """Renew what has changed and come to rest, where it can be used; return what there is to say."""
        said = []
        for name, one in self._named.items():
            try:
                if one.look():
                    said.append(f"{name} was renewed")
            except (InvalidInput, StorageError) as error:
                said.append(f"{error}; {STAYS}")
        return said

    def read(self) -> list[str]:
        """Renew now what has changed; return what there is to say.

        Raises:
            InvalidInput: A token cannot be used.
            StorageError: A certificate or its key cannot.
        """
        return [f"{name} was renewed" for name, one in self._named.items() if one.read()]


def _identity(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Identity | None:
    return None if certificate is None else read_identity(certificate, key, client_ca)
