"""Speaks Triton's control protocol over gRPC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tritonclient.grpc as tritongrpc
from google.protobuf.json_format import MessageToDict
from tritonclient.utils import InferenceServerException

from tuner.adapters.connection.channel import channel_options, tidy
from tuner.adapters.connection.client import ControlClient
from tuner.adapters.metrics.totals import Reading
from tuner.adapters.triton.configuration import ModelConfig
from tuner.adapters.triton.neighbours import READY
from tuner.adapters.triton.statistics import read_statistics
from tuner.adapters.triton.target import TritonTarget
from tuner.errors import AdapterError, ReadOnly, Refused, TimedOut, UnknownModel, Unreachable
from tuner.printable import one_line

__all__ = ["NEWER", "TritonClient"]

READ_ONLY = (
    "the server takes no changes; start Triton with --model-control-mode=explicit --load-model=MODEL "
    "(or, if it polls its models, name their folder with repository= in the target)"
)
NEWER = (
    "the model's configuration has fields that the installed tritonclient does not know, and a change would "
    "lose them; install the tritonclient of this Triton, or a newer one"
)
KEPT_BACK = (
    "it takes some calls only with a header that servetune does not send (%s); leave metadata, model-config "
    "and statistics out of Triton's --grpc-restricted-protocol to have it observed, health and "
    "model-repository, too, to have it tuned"
)
NO_CONTROL = "explicit model load / unload is not allowed"
RESTRICTED = "This protocol is restricted"
LOADING = "LOADING"
NO_SUCH_VERSION = (
    "version {} is not at ready state",
    "version {} is not found",
    "model version is not available",
)
"""What Triton says of a version that it does not serve, each with another status."""
NO_INDEX = frozenset(
    {"NOT_FOUND", "INVALID_ARGUMENT", "UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED"}
)
"""gRPC statuses with which a server, or a proxy that lets only some calls through, keeps back its index."""
POLICY = "a load applies the model's version_policy; name a version that it keeps with version=, or none"
LONGEST_NAME = 100
"""Characters of the server's name and of its version."""
LARGEST_CONFIG = 1_000_000
"""Bytes."""
PROBE = "servetune-no-such-model"


class NoIndex(AdapterError):
    """The server does not list its models, or for others only."""


class TritonClient(ControlClient[TritonTarget]):
    """The control side of one model on one Triton server; loading a model has a timeout of its own."""

    title = "Triton"
    unknown_model = frozenset({"NOT_FOUND", "INVALID_ARGUMENT"})
    reads_all = True
    """Whether every field of the model's configuration was known when it was last read."""

    def _connect(self) -> Any:
        return tritongrpc.InferenceServerClient(
            self._target.address,
            ssl=self._target.security.grpc,
            creds=self._target.security.channel_credentials(),
            channel_args=channel_options(self._target.host),
        )

    def identity(self) -> tuple[str, str]:
        """Return the server's name and version.

        Raises:
            Unreachable: Nobody answers.
        """
        try:
            with self.translated():
                metadata = self._connection.get_server_metadata(client_timeout=self._timeout)
        except TimedOut as error:
            # This is the first call: a server that does not answer it is more likely no Triton than slow.
            problem = f"{self._target.address}: no answer within {self._timeout:g} s"
            raise Unreachable(f"{problem}; {self.hint}") from error
        return one_line(metadata.name, LONGEST_NAME), one_line(metadata.version, LONGEST_NAME)

    def models(self) -> list[str] | None:
        """Return the names of the models that are loaded; None if the server does not list them for us."""
        try:
            return sorted(name for name, state in self._states().items() if state == READY)
        except NoIndex:
            return None

    def neighbours(self) -> dict[str, str]:
        """Return the states of the server's other models; with several versions, READY if one is.

        Raises:
            AdapterError: The server cannot be asked, or does not say.
        """
        states = self._states()
        states.pop(self._target.model, None)
        return states

    def _versions(self) -> dict[str, str]:
        """Return the states of the model's versions; none if the server does not list them for us."""
        try:
            return {one.version: one.state for one in self._index() if one.name == self._target.model}
        except NoIndex:
            return {}

    def _index(self) -> Any:
        with self.translated():
            try:
                return self._connection.get_model_repository_index(client_timeout=self._timeout).models
            except InferenceServerException as error:
                status, words = _status_and_words(error)
                # Its status is about the index, not about the model, whose error may be what asks for it.
                if RESTRICTED in words or status in NO_INDEX:
                    problem = f"{self._target.address} does not list its models: {words} ({status})"
                    raise NoIndex(problem) from error
                raise

    def _states(self) -> dict[str, str]:
        states: dict[str, str] = {}
        for model in self._index():
            if states.get(model.name) != READY:
                states[model.name] = model.state
        return states

    def ready(self) -> bool:
        """Whether the model answers requests."""
        model, version = self._target.model, self._target.version
        with self.translated():
            return bool(self._connection.is_model_ready(model, version, client_timeout=self._timeout))

    def config(self) -> ModelConfig:
        """Return the model's whole configuration.

        Raises:
            UnknownModel: The server does not serve it (once it did: Unreachable).
        """
        message = self._config_message(self._target.model, self._target.version)
        self._known = True
        size = message.ByteSize()
        message.DiscardUnknownFields()
        self.reads_all = message.ByteSize() == size
        return _as_plain(message)

    def config_of(self, model: str, version: str = "") -> ModelConfig:
        """Return the whole configuration of any model of the server.

        Raises:
            UnknownModel: The server does not serve it.
            AdapterError: It is larger than the configuration of a model can be.
        """
        return _as_plain(self._config_message(model, version))

    def _config_message(self, model: str, version: str) -> Any:
        with self.translated():
            message = self._connection.get_model_config(model, version, client_timeout=self._timeout).config
        if (size := message.ByteSize()) > LARGEST_CONFIG:
            raise AdapterError(f"the configuration of '{model}' has {size} bytes, more than {LARGEST_CONFIG}")
        return message

    def statistics(self) -> dict[str, Reading]:
        """Return the model's statistics by version."""
        model, version = self._target.model, self._target.version
        with self.translated():
            answer = self._connection.get_inference_statistics(model, version, client_timeout=self._timeout)
        return read_statistics(answer)

    def load(self, config: Mapping[str, Any], timeout: float) -> None:
        """Have the server run the model with a configuration.

        Args:
            config: All of it.
            timeout: Longest wait, s.

        Raises:
            ReadOnly: The server takes no changes.
            Refused: It refused this one; its own words are in the message.
            TimedOut: It did not finish, and may do so later.
        """
        try:
            self._connection.load_model(self._target.model, config=json.dumps(config), client_timeout=timeout)
        except InferenceServerException as error:
            status, words = _status_and_words(error)
            # A server that forbids every change says so with the status UNAVAILABLE.
            if status in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}:
                raise self._translation(status, words) from error
            raise Refused(f"Triton refused the configuration: {words}") from error

    def why_read_only(self) -> str:
        """Return why the server takes no changes; empty if it does.

        Asks it to unload a model that does not exist. That does nothing, but only a server in explicit mode
        allows it.
        """
        try:
            self._connection.unload_model(PROBE, client_timeout=self._timeout)
        except InferenceServerException as error:
            status, words = _status_and_words(error)
            translated = self._translation(status, words)
            if isinstance(translated, ReadOnly):
                return str(translated)
            if isinstance(translated, (Unreachable, TimedOut)) and status != "NOT_FOUND":
                raise translated from error
        return ""

    def _failure(self, error: Exception) -> tuple[str, str] | None:
        return _status_and_words(error) if isinstance(error, InferenceServerException) else None

    def _translation(self, status: str, words: str) -> AdapterError | UnknownModel:
        if RESTRICTED in words:
            return ReadOnly(KEPT_BACK % words)
        if NO_CONTROL in words:
            return ReadOnly(READ_ONLY)
        version = self._target.version
        if version and any(each.format(version) in words for each in NO_SUCH_VERSION):
            return self._without_version(status)
        return super()._translation(status, words)

    def _without_version(self, status: str) -> AdapterError | UnknownModel:
        """Return the error that stands for the version of the target, which the server does not serve."""
        address, model, version = self._target.address, self._target.model, self._target.version
        states = self._versions()
        served = [each for each, state in states.items() if state == READY]
        # A server that starts knows its versions before it serves any; one may be ready by the second call.
        starting = status == "UNAVAILABLE" and not served and not self._known
        if starting or states.get(version) in {LOADING, READY}:
            return Unreachable(f"{address}: version {version} of '{one_line(model)}' is not ready")
        if not self._known:
            return UnknownModel(model, served if states else None, version=version)
        but = f", but version {', '.join(map(one_line, served))}: {POLICY}" if served else ""
        return Unreachable(f"{address} no longer serves version {version} of '{one_line(model)}'{but}")


def _as_plain(message: Any) -> ModelConfig:
    config: ModelConfig = MessageToDict(message, preserving_proto_field_name=True)
    return config


def _status_and_words(error: InferenceServerException) -> tuple[str, str]:
    return str(error.status()).removeprefix("StatusCode."), tidy(str(error.message()))
