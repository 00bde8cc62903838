"""Keeps secrets in private files, out of addresses, and out of unencrypted connections."""

from __future__ import annotations

import ipaddress
import logging
import stat
from pathlib import Path
from urllib.parse import urlsplit

from tuner.errors import InvalidInput, StorageError
from tuner.files.storage import read_file

__all__ = [
    "TOKEN_STAYS",
    "TokenFile",
    "check_not_in_the_clear",
    "check_private",
    "is_loopback",
    "read_secret",
    "refuse_credentials",
]

log = logging.getLogger(__name__)

LARGEST_TOKEN = 100_000
"""Bytes of the file of a token."""
TOKEN_STAYS = "the token from before stays in use"


def refuse_credentials(address: str, setting: str, fix: str) -> None:
    """Refuse an address that may hold a user name or a password: addresses are logged, stored and shown.

    Any ``@`` counts, because a parser does not find the one after a password that has a ``/`` or ``?`` in it.
    The message does not repeat the address.

    Args:
        address: As the user wrote it.
        setting: The setting that holds it.
        fix: Where credentials belong.

    Raises:
        InvalidInput: It has an ``@``.
    """
    if "@" in address:
        problem = "user names and passwords do not belong in an address, nor does any other @"
        raise InvalidInput(setting, problem, f"{fix}; write %40 for an @ in a name")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine. What is sent to it cannot be read on a network."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_not_in_the_clear(address: str, setting: str) -> None:
    """Refuse to send a token to a web address over a network unless it is encrypted.

    Args:
        address: Where the token would be sent.
        setting: The setting that holds the token.

    Raises:
        InvalidInput: It is not encrypted.
    """
    parts = urlsplit(address)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise InvalidInput(
            setting, f"the token would be sent to {address} in the clear", "use https://, or leave it out"
        )


def check_private(path: Path, setting: str) -> None:
    """Refuse a file of secrets that every user can read.

    A file that is missing or cannot be looked at passes: reading it fails with a better message.

    Raises:
        InvalidInput: Every user can read it.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # ValueError: such as a name with a null
        return
    if mode & stat.S_IROTH:
        raise InvalidInput(f"{setting} {path}", "can be read by everybody", f"chmod o-r {path}")


def read_secret(path: Path, setting: str) -> str:
    """Return the token that a file holds.

    Raises:
        StorageError: It cannot be read, or is empty.
        InvalidInput: It can be read by everybody.
    """
    check_private(path, setting)
    try:
        token = read_file(path, LARGEST_TOKEN).decode().strip()
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or "is no text"
        raise StorageError(f"{setting} {path}: cannot be read: {problem}") from error
    if not token or not token.isprintable():
        raise StorageError(f"{setting} {path}: holds no token")
    return token


class TokenFile:
    """The token of a file. While the file cannot be used, as in the middle of a renewal, the last one counts.

    Args:
        path: The file; it is read when it changes, or the link that it is.
        setting: What names it, for messages.
    """

    def __init__(self, path: Path, setting: str) -> None:
        self._path = path
        self._setting = setting
        self._stamp: tuple[int, int] | None = None
        self._token = ""
        self._said = ""  # why it could not be used last

    def token(self) -> str:
        """Return the token.

        Raises:
            StorageError: The file cannot be read, or is empty, and never held a token.
            InvalidInput: It can be read by everybody, and never could be used.
        """
        try:
            if (stamp := self._look()) is None or stamp != self._stamp:
                self._token, self._stamp = read_secret(self._path, self._setting), stamp
        except (InvalidInput, StorageError) as error:
            if not self._token:
                raise
            if str(error) != self._said:
                self._said = str(error)
                log.warning("%s; %s", error, TOKEN_STAYS)
        else:
            self._said = ""
        return self._token

    def _look(self) -> tuple[int, int] | None:
        """Return what tells one content of the file from another; None if reading it says what is wrong."""
        try:
            found = self._path.stat()  # of what a link leads to by now
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns
