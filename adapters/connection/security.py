"""How connections to a server are secured: TLS, certificates, and a token, as options of a target."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tuner.adapters.connection.address import Option, existing_path
from tuner.adapters.connection.credentials import TokenFile, read_secret
from tuner.adapters.connection.identity import NO_PASSWORD, read_identity
from tuner.errors import InvalidInput, StorageError, TunerError

__all__ = ["SECURITY", "SECURITY_OPTIONS", "Security", "certificate_files", "parse_security"]

SECURITY = {
    "tls": Option("", "`grpc`, `metrics` or `all`: what is reached over TLS"),
    "ca": Option("", "file of the certificates to trust, instead of the system's"),
    "cert": Option("", "file with a certificate of our own, where the server wants to know who asks"),
    "key": Option("", "file with its key"),
    "token_file": Option("", "file with a bearer token, read again when it changes; only ever sent over TLS"),
}
"""The options."""
SECURITY_OPTIONS = {name: option.default for name, option in SECURITY.items()}
"""Their defaults."""
WAYS = {"": (False, False), "grpc": (True, False), "metrics": (False, True), "all": (True, True)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Security:
    """How the connections to a server are secured; by default not at all."""

    grpc: bool = False
    metrics: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None

    def options(self) -> dict[str, str]:
        """Return the options of a target that mean the same: names of files, but no secrets."""
        way = next(name for name, value in WAYS.items() if value == (self.grpc, self.metrics))
        paths = {"ca": self.ca, "cert": self.cert, "key": self.key, "token_file": self.token_file}
        return {"tls": way, **{name: str(path) if path is not None else "" for name, path in paths.items()}}

    @property
    def certificates(self) -> tuple[Path, ...]:
        """The files of certificates that a gRPC channel is opened with."""
        if not self.grpc:
            return ()
        return tuple(path for path in (self.ca, self.cert, self.key) if path is not None)

    def channel_credentials(self) -> Any:
        """Return the ``grpc.ChannelCredentials``, None for a channel in the clear.

        Raises:
            StorageError: A file cannot be read, or the certificate and the key do not belong together.
            InvalidInput: The token can be read by everybody.
        """
        if not self.grpc:
            return None
        import grpc

        identity = read_identity(self.cert, self.key, self.ca)
        credentials = grpc.ssl_channel_credentials(identity.authorities, identity.key, identity.certificate)
        if self.token_file is None:
            return credentials
        read_secret(self.token_file, "token_file")
        return grpc.composite_channel_credentials(
            credentials, grpc.metadata_call_credentials(_Token(self.token_file))
        )

    def web(self) -> tuple[ssl.SSLContext | None, dict[str, str]]:
        """Return how the metrics are reached: the TLS context (None in the clear) and the headers.

        Raises:
            StorageError: A file cannot be read.
            InvalidInput: The token can be read by everybody.
        """
        if not self.metrics:
            return None, {}
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, NO_PASSWORD)
        except (OSError, ssl.SSLError) as error:
            read_identity(self.cert, self.key, self.ca)  # it names the file
            raise StorageError(f"the certificates cannot be used: {error}") from error
        token = read_secret(self.token_file, "token_file") if self.token_file is not None else ""
        return context, {"Authorization": f"Bearer {token}"} if token else {}


def parse_security(options: Mapping[str, str]) -> Security:
    """Read the options of a target.

    Raises:
        InvalidInput: They contradict each other, or name no file.
    """
    if options["tls"] not in WAYS:
        raise InvalidInput(
            "TARGET", f"tls='{options['tls']}' is unknown", "write tls=grpc, tls=metrics or tls=all"
        )
    grpc, metrics = WAYS[options["tls"]]
    paths = {
        name: existing_path(name, options[name], folder=False, renewed=True)
        for name in ("ca", "cert", "key", "token_file")
    }
    named = [name for name, path in paths.items() if path is not None]
    if named and not (grpc or metrics):
        raise InvalidInput(
            "TARGET", f"{named[0]}= without TLS has no effect, or is not safe", "add tls=grpc or tls=all"
        )
    if (paths["cert"] is None) != (paths["key"] is None):
        raise InvalidInput("TARGET", "cert= and key= belong together", "give both files")
    return Security(grpc=grpc, metrics=metrics, **paths)


def certificate_files(target: str) -> tuple[Path, ...]:
    """Return the files of certificates that the gRPC channel of a target was opened with, by any adapter.

    Those of a target with several hosts may have a value for each of them, with commas between.
    """
    try:
        options = dict(parse_qsl(urlsplit(target).query))
    except ValueError:  # whoever opens it says what is wrong with it
        return ()
    if not WAYS.get(options.get("tls", ""), (False,))[0]:
        return ()
    named = [options[name].split(",") for name in ("ca", "cert", "key") if name in options]
    return tuple(Path(path) for paths in named for path in paths)


class _Token:
    """Gives each call the token of a file. gRPC calls it from threads of its own."""

    def __init__(self, path: Path) -> None:
        self._file = TokenFile(path, "token_file")

    def __call__(self, _context: Any, callback: Any) -> None:
        try:
            token = self._file.token()
        except TunerError as error:
            callback((), error)
        else:
            callback((("authorization", f"Bearer {token}"),), None)
