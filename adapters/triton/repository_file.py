"""Changes a model of a server in poll mode by its ``config.pbtxt``, which such a server reads again.

Such a server takes no changes over the network. If it refuses a file, it goes on with its old configuration
and says so in its log only. So the file is written as a whole, and put back if the server does not run it in
time. At the end the operator's own text comes back, with its comments: the one that was found, or one that
the operator has deployed since. What he has written and the server has not taken yet is not overwritten.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from tritonclient.grpc import model_config_pb2

from tuner.adapters.live.waiting import comes_true, longer
from tuner.adapters.triton.change import Reader, runs_with_batching, serves
from tuner.adapters.triton.configuration import ModelConfig, normal_form
from tuner.errors import AdapterError, InvalidInput, Refused, StorageError
from tuner.files.storage import read_to_the_letter, unfinished_copies, write_for_server

__all__ = ["RepositoryFile"]

FILE = "config.pbtxt"
AMPLE = 60.0
"""By then a server has looked at its files, s: by default it does so every 15 s."""
UNKNOWN = "\0"
"""A text that no file has."""
OURS = "# written by servetune, which puts the file back when it restores\n"
"""What every text of ours begins with."""

SHARED = (
    "it was another servetune, or a change of another replica with the same folder; "
    "give each replica a folder of its own, repository=/models-a,/models-b, or start them in explicit mode"
)
"""Why the file is one of ours that this server was not to read, and what to do."""


class RepositoryFile:
    """The control of one model through its file; see :class:`tuner.adapters.triton.change.ModelControl`.

    Args:
        reader: The server.
        repository: The folder of all models, as it is seen from here.
        model: The model's name.
        load_timeout: How long the server may take to load the model, s.

    Raises:
        InvalidInput: The folder has no such model.
    """

    def __init__(self, reader: Reader, repository: Path, model: str, *, load_timeout: float = 0.0) -> None:
        folder = repository / model
        if model in (".", "..") or not folder.is_dir():
            raise InvalidInput(
                "TARGET repository", f"{repository} has no model '{model}'", "give the folder of all models"
            )
        self._reader = reader
        self._load_timeout = load_timeout
        self._file = folder / FILE
        self._found = self._written = self._read()  # the operator's text, and the last of anybody we know of
        self._left: tuple[str | None, str | None] | None = None  # what is to be put back: ours, and before it
        running = reader.config()
        self._original = self._loaded = normal_form(running)  # what the server makes of these
        if self._found is not None and self._found.startswith(OURS) and not _means(self._found, running):
            # A tuner was killed while the server had not taken this yet. What the operator wrote is lost.
            self._left = self._found, _text(running)
            self._found = self._written = self._left[1]
        elif self._found is not None and not self._is_taken(self._found, running):
            self._written = UNKNOWN  # the operator has just written another

    def config(self) -> ModelConfig:
        """Return what the server runs, and note it if it is a text of the operator's that we did not know.

        Until the server has taken a text, it is not known what it makes of it.
        """
        text, config = self._read(), self._reader.config()
        late = self._left is not None and text == self._left[0]  # it could not be put back, and may yet be
        if text == self._written or not (self._runs(text, config) if late else self._is_taken(text, config)):
            return config
        if not late:
            self._found, self._original = text, normal_form(config)
        self._written, self._loaded, self._left = text, normal_form(config), None
        return config

    def _is_taken(self, text: str | None, running: ModelConfig) -> bool:
        """Whether the server runs a text, or had ample time for it."""
        if self._runs(text, running):
            return True
        changed = self._file.parent if text is None else self._file
        try:  # not the time of its text, which is copied with a file
            return time.time() - changed.stat().st_ctime > max(AMPLE, self._load_timeout)
        except OSError:
            return False

    def _runs(self, text: str | None, running: ModelConfig) -> bool:
        """Whether the server runs all that a text says; a text of ours says everything."""
        if text is None:
            return normal_form(running) != self._loaded
        if text.startswith(OURS):
            return _means(text, running)
        with suppress(text_format.ParseError):
            read = text_format.Parse(text, model_config_pb2.ModelConfig())
            said = MessageToDict(read, preserving_proto_field_name=True)
            return bool(said) and _within(said, running)  # one that is just being written says nothing yet
        return False

    def ready(self) -> bool:
        """Whether the model answers requests."""
        return self._reader.ready()

    def load(self, config: Mapping[str, Any], timeout: float) -> None:
        """Write a configuration and wait until the server runs it; if it does not, put the file back.

        It may add dynamic batching, as it may to what it gets over the network: then the file stays.

        Raises:
            Refused: The server did not take it in time, the file cannot be written, or somebody else has
                written it and the server does not run that yet.
            AdapterError: The server cannot be asked.
        """
        self.put_back()
        self._sweep()
        if (before := self._read()) != self._written:  # nor did it when it was last asked
            problem = f"somebody has changed {self._file}, and Triton does not run that yet"
            if before is not None and before.startswith(OURS):
                raise Refused(f"{problem}: {SHARED}")
            raise Refused(f"{problem} (if it refuses it, its log says why)")
        text = self._found if normal_form(config) == self._original else _text(config)
        # What it adds to a configuration without batching shows only where it did not run just that.
        tells = not runs_with_batching(self._reader, config)
        try:
            self._write(text, instead_of=before)
        except StorageError as error:
            raise Refused(str(error)) from error
        try:
            if not comes_true(lambda: self._has_taken(config, tells=tells), timeout):
                hint = f"either it refuses it (see its log), or it does not poll; {longer(timeout)}"
                raise Refused(f"Triton did not take {self._file} within {timeout:g} s; {hint}")
        except BaseException as error:  # also Ctrl-C leaves the file as it was
            self._take_back(text, before, error)
            raise
        self._written, self._loaded = text, normal_form(config)

    def _has_taken(self, config: Mapping[str, Any], *, tells: bool) -> bool:
        """Whether the server runs a configuration, or, where that tells, has completed it to another."""
        return serves(self._reader, config) or (tells and runs_with_batching(self._reader, config))

    def _take_back(self, ours: str | None, before: str | None, why: BaseException) -> None:
        """Put the file back, unless somebody else has written it since."""
        self._left = ours, before
        try:
            self._undo()
        except Refused as error:
            raise AdapterError(f"{why}; the file could not be put back: {error}") from error

    def put_back(self) -> None:
        """Put the file back after a change that failed, if that was not possible at once.

        If the server has taken it since, it stays.

        Raises:
            Refused: It is still not possible.
            AdapterError: The server cannot be asked.
        """
        if self._left is not None:
            self.config()
            self._undo()

    def _undo(self) -> None:
        if self._left is None:
            return
        ours, before = self._left
        if self._read() == ours:
            try:
                self._write(before, instead_of=ours)
            except StorageError as error:
                raise Refused(str(error)) from error
        self._left = None

    def _sweep(self) -> None:
        """Remove what a killed tuner has begun to write; nobody writes for as long as a minute."""
        with suppress(OSError):
            for copy in unfinished_copies(self._file):
                if time.time() - copy.stat().st_ctime > AMPLE:
                    copy.unlink()

    def _read(self) -> str | None:
        """Return the file's text; None if there is none and Triton makes up the configuration itself."""
        try:
            return read_to_the_letter(self._file)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"{self._file} cannot be read: {error}") from error

    def _write(self, text: str | None, *, instead_of: str | None) -> None:
        """Write the file, or remove it.

        Raises:
            StorageError: That cannot be done, or it has another text than ``instead_of`` by now.
        """
        try:
            if text is None:
                self._file.unlink(missing_ok=True)
                return
            new = not self._file.exists()
            write_for_server(self._file, text, instead_of=instead_of)
            if new:  # Triton may run as another user
                self._file.chmod(0o644)
        except OSError as error:
            raise StorageError(f"cannot write {self._file}: {error.strerror or error}") from error


def _text(config: Mapping[str, Any]) -> str:
    try:
        message = ParseDict(dict(config), model_config_pb2.ModelConfig())
    except ParseError as error:
        raise Refused(f"the configuration has a field that this version does not know: {error}") from error
    return OURS + str(text_format.MessageToString(message))


def _within(part: Any, whole: Any) -> bool:
    """Whether a configuration has all that another says; a server fills in what that does not."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(_within(each, whole.get(name)) for name, each in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(_within, part, whole))
    return bool(part == whole)


def _means(text: str, config: ModelConfig) -> bool:
    """Whether a text of ours, which has every field, is what a server runs."""
    try:
        message = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError:
        return False
    read = MessageToDict(message, preserving_proto_field_name=True)
    return normal_form(read) == normal_form(config)
