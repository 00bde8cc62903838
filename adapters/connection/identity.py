"""Who one end of a TLS connection is, and whom it trusts: a certificate with its key, and authorities.

Files are renewed while they are used, one after the other. So they are read once and checked together, and
both gRPC and ``ssl`` get the bytes that were checked, whatever happens to the files.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import StorageError
from tuner.files.storage import read_file

__all__ = ["NO_PASSWORD", "Identity", "read_identity"]

LARGEST_FILE = 10_000_000
"""Bytes of a file of certificates."""
NO_PASSWORD = ""
"""For a key that is encrypted: OpenSSL would ask for it at the terminal."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the files of one end held at one moment, in PEM."""

    certificate: bytes | None
    """With those between it and its authority; None if this end shows none."""
    key: bytes | None = field(repr=False)
    """Of the certificate."""
    authorities: bytes | None
    """Who must have certified the other end, if it is not left to the defaults."""

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS of a server; who is not certified by `authorities`, if there are any, is not let in.

        Raises:
            StorageError: The parts do not fit, or there are too many open files.
        """
        with _explained("the certificates cannot be used"):
            return self._context()

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        if self.certificate is not None and self.key is not None:
            with _as_file(self.certificate) as certificate, _as_file(self.key) as key:
                context.load_cert_chain(certificate, key, NO_PASSWORD)
        if self.authorities is not None:
            with _as_file(self.authorities) as authorities:
                context.load_verify_locations(authorities)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def read_identity(certificate: Path | None, key: Path | None, authorities: Path | None) -> Identity:
    """Read the files of one end.

    Args:
        certificate: None if it shows none.
        key: Of the certificate.
        authorities: None to leave it to the defaults.

    Raises:
        StorageError: One cannot be read, or is no certificate or key, or the two do not belong together.
    """
    found = Identity(*(_read(path) for path in (certificate, key, authorities)))
    for path, content in ((certificate, found.certificate), (authorities, found.authorities)):
        if content is not None:
            with _explained(f"{path}: is no certificate"), _as_file(content) as file:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
    with _explained(f"{key}: is no key, or one with a password", f"{certificate} and {key}"):
        found._context()
    return found


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return read_file(path, LARGEST_FILE)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


@contextmanager
def _explained(problem: str, pair: str = "") -> Iterator[None]:
    """Turn what OpenSSL says inside the block into our words: its own name neither file nor problem."""
    try:
        yield
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"{pair}: the certificate and the key do not belong together"
        raise StorageError(problem) from error
    except OSError as error:  # such as too many open files
        raise StorageError(f"the certificates cannot be checked: {error.strerror or error}") from error


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Give the content a name, which is all that ``ssl`` takes, without writing a key to a disk."""
    with os.fdopen(os.memfd_create("pem"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
