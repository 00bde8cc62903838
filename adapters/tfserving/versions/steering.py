"""How requests come to a new version: by default the newest serves, else the model configuration decides.

TensorFlow Serving by default serves the newest version to requests that name none. If the operator's
``--model_config_file`` names versions, or clients ask for a version label, the file must be changed:

1. *admit*: the new version is named beside the old one;
2. *switch*: once it is available, the label moves to it (a label can only stand for an available version);
3. *dismiss*: versions of ours that no longer serve are no longer named.

The whole file is sent each time, because models that are missing from it would be unloaded. It is also
written, so that a server that polls it, or starts again, gets the same. The operator's own text is kept
beside it until everything is put back.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from google.protobuf import text_format

from tuner.adapters.tfserving.schema import message
from tuner.errors import AdapterError, InvalidInput, Refused, StorageError
from tuner.files.storage import write_atomically

__all__ = ["ConfigFile", "Reloader", "Steering"]

KEPT = ".servetune-original"


class Reloader(Protocol):
    """Sends a configuration to the server."""

    def reload(self, config: Any, timeout: float) -> None:
        """Have the server take a whole model configuration."""
        ...


class Steering:
    """Brings requests to a version, of a server that finds new versions by itself and serves the newest.

    Nothing is to be done there. For other servers see :class:`ConfigFile`.
    """

    label = ""
    """The label that clients ask for; empty if they name no version."""

    def labelled(self) -> set[int]:
        """Return the versions that other labels stand for."""
        return set()

    def admit(self, number: int) -> None:
        """Have the server load a version beside those it serves."""

    def switch(self, number: int) -> None:
        """Bring the requests to a version that is available."""

    def dismiss(self, numbers: Iterable[int]) -> None:
        """Have the server no longer load these versions."""

    def revert(self) -> None:
        """Undo what was done since the last switch."""

    def restore(self) -> None:
        """Put back what was found at opening."""


class ConfigFile(Steering):
    """Brings requests to a version by the model configuration file of a server.

    Args:
        path: The file, as it is seen from here.
        model: The model to steer; the others stay as they are.
        label: The label that clients ask for; empty if they name no version.
        reloader: Sends it to the server.
        timeout: Longest wait for the server to take it, s.

    Raises:
        InvalidInput: The file cannot be used for this model.
    """

    def __init__(self, path: Path, model: str, label: str, reloader: Reloader, timeout: float) -> None:
        self._path = path
        self._model = model
        self.label = label
        self._reloader = reloader
        self._timeout = timeout
        self._before: str | None = None
        self._check(self._read()[1])

    def labelled(self) -> set[int]:
        """Return the versions that other labels stand for."""
        labels = self._entry(self._read()[1]).version_labels
        return {number for label, number in labels.items() if label != self.label}

    def admit(self, number: int) -> None:
        """Name the version, where versions are named."""
        self._before, config = self._read()
        entry = self._entry(config)
        if entry.model_version_policy.HasField("specific"):
            versions = entry.model_version_policy.specific.versions
            if number not in versions:
                versions.append(number)
                self._put(config)

    def switch(self, number: int) -> None:
        """Move the label."""
        if not self.label:
            return
        _, config = self._read()
        self._entry(config).version_labels[self.label] = number
        self._put(config)

    def dismiss(self, numbers: Iterable[int]) -> None:
        """No longer name the versions."""
        _, config = self._read()
        entry = self._entry(config)
        named = entry.model_version_policy.specific.versions
        kept = [version for version in named if version not in set(numbers)]
        if entry.model_version_policy.HasField("specific") and kept != list(named):
            del named[:]
            named.extend(kept)
            self._put(config)
        self._before = None

    def revert(self) -> None:
        """Write and send what the file said before."""
        if self._before is not None:
            text, self._before = self._before, None
            self._put_text(text)

    def restore(self) -> None:
        """Write the operator's own text again, with its comments, if it means what the file means now.

        If it does not, somebody has changed the file since, and that change stays.
        """
        kept = self._kept()
        if not kept.exists():
            return
        text = kept.read_text(encoding="utf-8")
        if text_format.Parse(text, message("ModelServerConfig")()) == self._read()[1]:
            self._put_text(text)
        kept.unlink()

    def _kept(self) -> Path:
        return self._path.with_name(f"{self._path.name}{KEPT}")

    def _read(self) -> tuple[str, Any]:
        try:
            text = self._path.read_text(encoding="utf-8")
            return text, text_format.Parse(text, message("ModelServerConfig")())
        except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
            raise AdapterError(f"model configuration {self._path} cannot be read: {error}") from error

    def _entry(self, config: Any) -> Any:
        entries = [entry for entry in config.model_config_list.config if entry.name == self._model]
        if len(entries) != 1:
            problem = f"{self._path} has {len(entries)} entries for the model '{self._model}'"
            raise InvalidInput("TARGET config", problem, "name the server's --model_config_file")
        return entries[0]

    def _check(self, config: Any) -> None:
        entry = self._entry(config)
        policy = entry.model_version_policy
        keeps = policy.HasField("specific") or policy.HasField("all") or policy.latest.num_versions > 1
        if self.label and not keeps:
            problem = (
                f"{self._path} keeps only the newest version, so that a label has nothing to move between"
            )
            fix = "set model_version_policy to specific, all, or latest with num_versions 2"
            raise InvalidInput("TARGET config", problem, fix)
        if self.label and self.label not in entry.version_labels:
            known = ", ".join(sorted(entry.version_labels)) or "none"
            raise InvalidInput(
                "TARGET label", f"{self._path} has no label '{self.label}'", f"it has: {known}"
            )

    def _put(self, config: Any) -> None:
        self._put_text(text_format.MessageToString(config), config)

    def _put_text(self, text: str, config: Any = None) -> None:
        """Write the file, then send it. In the other order a polling server might read the old file again."""
        before, _ = self._read()
        kept = self._kept()
        try:
            if not kept.exists():
                write_atomically(kept, before)
            write_atomically(self._path, text)
        except StorageError as error:
            raise Refused(f"{error}; the old configuration still serves") from error
        try:
            self._reloader.reload(
                config or text_format.Parse(text, message("ModelServerConfig")()), self._timeout
            )
        except AdapterError:
            with suppress(StorageError):
                write_atomically(self._path, before)
            raise
