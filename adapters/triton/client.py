"""Speaks Triton's control protocol over gRPC: every call with a timeout, every failure translated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tritonclient.grpc as tritongrpc
from google.protobuf.json_format import MessageToDict
from tritonclient.utils import InferenceServerException

from tuner.adapters.connection.channel import channel_options, tidy
from tuner.adapters.metrics.totals import Reading
from tuner.adapters.triton.configuration import ModelConfig
from tuner.adapters.triton.statistics import read_statistics
from tuner.adapters.triton.target import TritonTarget
from tuner.errors import AdapterError, ReadOnly, Refused, TimedOut, UnknownModel, Unreachable

__all__ = ["READ_ONLY", "TritonClient"]

READ_ONLY = (
    "the server takes no changes; start Triton with --model-control-mode=explicit --load-model=MODEL "
    "(or, if it polls its models, name their folder with repository= in the target)"
)
NO_CONTROL = "explicit model load / unload is not allowed"
RESTRICTED = "restricted"
PROBE = "servetune-no-such-model"


class TritonClient:
    """The control side of one model on one server.

    Args:
        target: Which.
        timeout: Longest wait for an answer, s; loading a model has its own.
    """

    def __init__(self, target: TritonTarget, *, timeout: float = 5.0) -> None:
        self._target = target
        self._timeout = timeout
        self._known = False  # whether the model was there once
        self._grpc = tritongrpc.InferenceServerClient(
            target.address,
            ssl=target.security.grpc,
            creds=target.security.channel_credentials(),
            channel_args=channel_options(target.host),
        )

    def identity(self) -> tuple[str, str]:
        """Return the server's name and version.

        Raises:
            Unreachable: Nobody answers.
        """
        try:
            with self._translated():
                metadata = self._grpc.get_server_metadata(client_timeout=self._timeout)
        except TimedOut as error:
            raise Unreachable(
                f"{self._target.address}: no answer within {self._timeout:g} s; {_HINT}"
            ) from error
        return str(metadata.name), str(metadata.version)

    def models(self) -> list[str]:
        """Return the names of the models that are loaded."""
        with self._translated():
            index = self._grpc.get_model_repository_index(client_timeout=self._timeout)
        return sorted({model.name for model in index.models if model.state == "READY"})

    def ready(self) -> bool:
        """Whether the model answers requests."""
        with self._translated():
            target = self._target
            return bool(self._grpc.is_model_ready(target.model, target.version, client_timeout=self._timeout))

    def config(self) -> ModelConfig:
        """Return the model's whole configuration.

        Raises:
            UnknownModel: The server does not serve it (once it did: Unreachable).
        """
        config = self.config_of(self._target.model, self._target.version)
        self._known = True
        return config

    def config_of(self, model: str, version: str = "") -> ModelConfig:
        """Return the whole configuration of any model of the server.

        Raises:
            UnknownModel: The server does not serve it.
        """
        with self._translated():
            answer = self._grpc.get_model_config(model, version, client_timeout=self._timeout)
        config: ModelConfig = MessageToDict(answer.config, preserving_proto_field_name=True)
        return config

    def statistics(self) -> dict[str, Reading]:
        """Return the model's statistics by version."""
        target = self._target
        with self._translated():
            answer = self._grpc.get_inference_statistics(
                target.model, target.version, client_timeout=self._timeout
            )
        return read_statistics(answer)

    def load(self, config: Mapping[str, Any], timeout: float) -> None:
        """Have the server run the model with a configuration.

        Args:
            config: All of it.
            timeout: Longest wait, s.

        Raises:
            ReadOnly: The server takes no changes.
            Refused: It refused this one; its own words are in the message.
            TimedOut: It did not finish; it may do so later.
        """
        try:
            self._grpc.load_model(self._target.model, config=json.dumps(config), client_timeout=timeout)
        except InferenceServerException as error:
            text = str(error.message())
            if _status(error) in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}:
                raise self._translation(error) from error
            raise Refused(f"Triton refused the configuration: {tidy(text)}") from error

    def writable(self) -> bool:
        """Whether the server takes changes.

        Unloads a model that does not exist: that does nothing, but only servers in explicit mode allow it.
        """
        try:
            self._grpc.unload_model(PROBE, client_timeout=self._timeout)
        except InferenceServerException as error:
            translated = self._translation(error)
            if isinstance(translated, ReadOnly):
                return False
            if isinstance(translated, (Unreachable, TimedOut)) and _status(error) != "NOT_FOUND":
                raise translated from error
        return True

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._grpc.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except InferenceServerException as error:
            raise self._translation(error) from error
        except ValueError as error:  # gRPC's word for a closed channel
            raise Unreachable(f"{self._target.address}: the connection was closed") from error

    def _translation(self, error: InferenceServerException) -> Exception:
        status, text, address = _status(error), tidy(str(error.message())), self._target.address
        if NO_CONTROL in text or RESTRICTED in text:
            return ReadOnly(READ_ONLY)
        if status == "UNAVAILABLE":
            return Unreachable(f"{address}: {text}; {_HINT}")
        if status == "DEADLINE_EXCEEDED":
            return TimedOut(f"{address}: no answer in time")
        if status in {"NOT_FOUND", "INVALID_ARGUMENT"}:
            if self._known:
                return Unreachable(f"{address} no longer serves '{self._target.model}': {text}")
            return UnknownModel(self._target.model, self.models())
        return AdapterError(f"{address}: {text} ({status})")


_HINT = "is Triton running, and is this its gRPC port?"


def _status(error: InferenceServerException) -> str:
    return str(error.status()).removeprefix("StatusCode.")
