"""The control side of a live server over gRPC, as far as it is the same for all servers."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from tuner.adapters.connection.target import LiveTarget
from tuner.errors import AdapterError, InvalidInput, StorageError, TimedOut, UnknownModel, Unreachable
from tuner.files.renewed import STAYS, Renewed

__all__ = ["ControlClient"]

NO_TLS = "WRONG_VERSION_NUMBER"
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
CUT_OFF = "Socket closed"
"""What gRPC says where a server ends the connection, as one that expects TLS or a certificate of ours."""
WHO_ASKS = "it wants to know who asks: name the file of a token with token_file=, and tls=grpc"
TOKEN_REFUSED = "it does not take the token that token_file= names: write a valid one into that file"
TargetT = TypeVar("TargetT", bound=LiveTarget)
log = logging.getLogger(__name__)


class ControlClient(ABC, Generic[TargetT]):
    """The control side of one model on one server, over gRPC.

    A failure of gRPC becomes one of :mod:`tuner.errors` here and nowhere else. When the certificates that its
    connection was opened with are renewed, the next call opens another one.

    Args:
        target: The model and its server.
        timeout: Longest wait for an answer, s.
    """

    title: ClassVar[str]
    """The server's name, for messages."""
    unknown_model: ClassVar[frozenset[str]] = frozenset({"NOT_FOUND"})
    """gRPC statuses with which the server says that it does not serve the model."""

    def __init__(self, target: TargetT, *, timeout: float = 5.0) -> None:
        self._target = target
        self._timeout = timeout
        # A model that was served once and is not now has gone away; one that never was is the user's mistake.
        self._known = False
        self._opened: Renewed[Any] = Renewed(self._connect, target.security.certificates)
        self._outdated: Any = None  # the connection before, over which another thread may still wait

    @property
    def _connection(self) -> Any:
        return self._opened.value

    def _renew(self) -> None:
        """Open another connection if the certificates were renewed; unless they cannot be used."""
        before = self._opened.value
        try:
            if self._opened.look():
                log.info("%s: the certificates were renewed", self._target.address)
                outdated, self._outdated = self._outdated, before
                if outdated is not None:
                    outdated.close()
        except (InvalidInput, StorageError) as error:
            log.warning("%s: %s; %s", self._target.address, error, STAYS)

    @abstractmethod
    def _connect(self) -> Any:
        """Open the connection, an object with the method ``close``."""

    @abstractmethod
    def _failure(self, error: Exception) -> tuple[str, str] | None:
        """Return the gRPC status and the words of an error, None if it is no error of gRPC."""

    def models(self) -> list[str] | None:
        """Return the names of the models that are served; None if the server does not say."""
        return None

    @property
    def hint(self) -> str:
        """What to tell a user if the server does not answer."""
        return f"is {self.title} running, and is this its gRPC port?"

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what gRPC raises inside the block into our own errors."""
        self._renew()
        try:
            yield
        except ValueError as error:  # gRPC's way to say that the channel is closed
            raise Unreachable(f"{self._target.address}: the connection was closed") from error
        except Exception as error:
            failure = self._failure(error)
            if failure is None:
                raise
            raise self._translation(*failure) from error

    def _translation(self, status: str, words: str) -> AdapterError | UnknownModel:
        """Return the error of ours that a failed call stands for."""
        address, model = self._target.address, self._target.model
        if status == "UNAVAILABLE":
            return Unreachable(f"{address}: {self._explained(words)}")
        if status == "DEADLINE_EXCEEDED":
            return TimedOut(f"{address}: no answer in time")
        if status == "UNIMPLEMENTED":
            return Unreachable(f"{address} is no {self.title}: {words}; {self.hint}")
        if status in self.unknown_model:
            if self._known:
                return Unreachable(f"{address} no longer serves '{model}': {words}")
            return UnknownModel(model, self.models())
        who_asks = WHO_ASKS if self._target.security.token_file is None else TOKEN_REFUSED
        fix = f"; {who_asks}" if status == "UNAUTHENTICATED" else ""
        return AdapterError(f"{address}: {words} ({status}){fix}")

    def _explained(self, words: str) -> str:
        """Return why a server does not answer, with what to look at, by what gRPC says of the connection."""
        secured = self._target.security.grpc
        if secured and NO_TLS in words:
            return "it does not speak TLS there; leave tls= out of the target, or name its port with TLS"
        if secured and UNTRUSTED in words:
            return f"{words}; does ca= name the authority of its certificate, and the target the host in it?"
        if self._known:  # its address is right, and it has ended
            return words
        if CUT_OFF not in words:
            return f"{words}; {self.hint}"
        option = "a certificate of ours (cert= and key=)" if secured else "TLS (tls=grpc)"
        return f"{words}; {self.hint} Does it want {option}?"

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._connection.close()
        if self._outdated is not None:
            self._outdated.close()
