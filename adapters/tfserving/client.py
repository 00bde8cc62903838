"""Speaks TensorFlow Serving's control protocol over gRPC, and over REST where gRPC answers too late."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import grpc

from tuner.adapters.connection.channel import open_channel, tidy
from tuner.adapters.connection.client import ControlClient
from tuner.adapters.connection.web import get
from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.target import TFServingTarget
from tuner.errors import AdapterError, Refused, StorageError, TimedOut, UnknownModel, Unreachable

__all__ = [
    "TFServingClient",
    "VersionState",
    "VersionStatus",
    "read_labelled",
    "read_versions",
    "serving_version",
]

MODEL = "/tensorflow.serving.ModelService/"
PREDICTION = "/tensorflow.serving.PredictionService/"
NOT_STANDING = ("NOT_FOUND", "INVALID_ARGUMENT")
"""What the server says of a label whose version is not loaded, and of a label that it does not know."""
T = TypeVar("T")
PATIENCE = 1.0
"""How long gRPC may take before the REST port is asked, s."""
MOST_VERSIONS = 10_000
"""Versions of a model; with more, the answer is refused."""
LARGEST_ANSWER = 1_000_000
"""Bytes of an answer of the REST port."""


class VersionState(IntEnum):
    """What a version is doing."""

    UNKNOWN = 0
    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


class VersionStatus(NamedTuple):
    """What the server says of one version."""

    state: VersionState
    error: str
    """Why it could not be loaded; empty if it could."""


class TFServingClient(ControlClient[TFServingTarget]):
    """The control side of one model on one TensorFlow Serving server."""

    title = "TensorFlow Serving"

    def _connect(self) -> Any:
        return open_channel(self._target.address, self._target.host, self._target.security)

    def _call(self, method: str, messages: str, request: Any, timeout: float) -> Any:
        """Call a method of the server's services.

        Args:
            method: Its path.
            messages: What the names of its messages begin with.
            request: The question.
            timeout: Longest wait for the answer, s.
        """
        with self.translated():
            call = self._connection.unary_unary(
                method,
                request_serializer=message(f"{messages}Request").SerializeToString,
                response_deserializer=message(f"{messages}Response").FromString,
            )
            return call(request, timeout=timeout)

    def _ask(self, method: str, messages: str, request: Any) -> Any:
        """Call a method that should answer at once; what is late is asked for by REST."""
        return self._call(method, messages, request, min(self._timeout, PATIENCE))

    def versions(self) -> dict[int, VersionStatus]:
        """Return what the server says of each version of the model.

        Predictions and questions wait for the same threads, so an overloaded server answers ours late.
        Then the REST port is asked, which has threads of its own.

        Raises:
            UnknownModel: The server does not serve it (once it did: Unreachable).
            AdapterError: The server cannot be asked.
        """
        request = message("GetModelStatusRequest")()
        request.model_spec.name = self._target.model
        try:
            answer = self._ask(f"{MODEL}GetModelStatus", "GetModelStatus", request)
        except TimedOut as late:
            found = self._rest("", read_versions)
            if found is None:
                raise self._too_late(late) from late
            return found
        self._known = True
        if len(answer.model_version_status) > MOST_VERSIONS:
            raise AdapterError(
                f"{self._target.address} says that the model has over {MOST_VERSIONS} versions"
            )
        return {
            int(entry.version): VersionStatus(_state(entry.state), _words(entry.status))
            for entry in answer.model_version_status
        }

    def labelled(self, label: str) -> int:
        """Return the version that a label stands for (GetModelStatus does not look at labels).

        Raises:
            UnknownModel: There is no such model or label (once there was: Unreachable).
            AdapterError: The server cannot be asked.
        """
        request = message("GetModelMetadataRequest")(metadata_field=["signature_def"])
        request.model_spec.name = self._target.model
        request.model_spec.version_label = label
        try:
            answer = self._ask(f"{PREDICTION}GetModelMetadata", "GetModelMetadata", request)
        except TimedOut as late:
            path = f"/labels/{quote(label, safe='')}/metadata"
            number = self._rest(path, read_labelled)
            if number is None:
                raise self._too_late(late) from late
            return number
        return int(answer.model_spec.version.value)

    def standing(self, label: str) -> int | None:
        """Return the version that a label stands for, None if it stands for none that is loaded.

        Raises:
            AdapterError: The server cannot be asked.
        """
        try:
            return self.labelled(label)
        except (AdapterError, UnknownModel) as error:
            cause = error.__cause__
            failure = self._failure(cause) if isinstance(cause, Exception) else None
            if failure is None or failure[0] not in NOT_STANDING:
                raise
            return None

    def _rest(self, path: str, read: Callable[[Any], T]) -> T | None:
        """Return what the REST port says of the model, None if it says nothing of use."""
        target, path = self._target, f"/v1/models/{quote(self._target.model, safe='')}{path}"
        deadline = time.monotonic() + self._timeout
        try:
            context, headers = target.security.web()
            answer = get(
                target.host,
                target.rest_port,
                path,
                deadline=deadline,
                largest=LARGEST_ANSWER,
                context=context,
                headers=headers,
            )
            return answer.read(read) if answer.status == http.HTTPStatus.OK else None
        except (OSError, ValueError, StorageError, http.client.HTTPException):
            return None

    def _too_late(self, late: TimedOut) -> AdapterError:
        return late if self._known else Unreachable(f"{late}; {self.hint}")

    def reload(self, config: Any, timeout: float) -> None:
        """Have the server take a whole model configuration: models that are not in it are unloaded.

        Raises:
            Refused: It refused; its own words are in the message.
            TimedOut: It did not finish; it may do so later.
        """
        request = message("ReloadConfigRequest")()
        request.config.CopyFrom(config)
        try:
            answer = self._call(f"{MODEL}HandleReloadConfigRequest", "ReloadConfig", request, timeout)
        except (UnknownModel, TimedOut, Unreachable):
            raise
        except AdapterError as error:
            raise Refused(f"TensorFlow Serving refused the model configuration: {error}") from error
        if answer.status.error_code:
            words = tidy(answer.status.error_message)
            raise Refused(f"TensorFlow Serving refused the model configuration: {words}")

    def _failure(self, error: Exception) -> tuple[str, str] | None:
        # The errors that grpc raises are of this class and have these methods, but it does not declare them.
        if not isinstance(error, grpc.RpcError):
            return None
        return error.code().name, tidy(error.details() or "")


def _state(number: int) -> VersionState:
    return VersionState(number) if number in VersionState._value2member_map_ else VersionState.UNKNOWN


def read_labelled(body: Any) -> int:
    """Return the version in the REST port's answer to a label."""
    return int(str(body["model_spec"]["version"]))  # of `true` it is ValueError


def read_versions(body: Any) -> dict[int, VersionStatus]:
    """Return what the REST port says of each version of a model."""

    def state(name: str) -> VersionState:
        return VersionState[name] if name in VersionState.__members__ else VersionState.UNKNOWN

    def words(status: Any) -> str:
        failed = status.get("error_code", "OK") != "OK"
        return tidy(status.get("error_message", "")) or f"error {status['error_code']}" if failed else ""

    return {
        int(str(entry["version"])): VersionStatus(state(entry["state"]), words(entry.get("status", {})))
        for entry in body["model_version_status"]
    }


def _words(status: Any) -> str:
    return tidy(status.error_message) or f"error {status.error_code}" if status.error_code else ""


def serving_version(statuses: Mapping[int, VersionStatus]) -> int | None:
    """Return the version that requests without a version go to, None if none is available."""
    return max((n for n, status in statuses.items() if status.state is VersionState.AVAILABLE), default=None)
