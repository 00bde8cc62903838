"""Changes a model of a server in poll mode by its ``config.pbtxt``, which such a server reads again.

Such a server takes no changes over the network. If it refuses a file, it goes on with its old configuration
and says so in its log only. So the file is written as a whole, and put back if the server does not run it in
time. At the end the operator's own text comes back, with its comments: the one that was found, or one that
the operator has deployed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.json_format import ParseDict, ParseError
from tritonclient.grpc import model_config_pb2

from tuner.adapters.live.waiting import comes_true
from tuner.adapters.triton.change import Reader, serves
from tuner.adapters.triton.configuration import ModelConfig, normal_form
from tuner.errors import AdapterError, InvalidInput, Refused, StorageError
from tuner.files.storage import write_for_server

__all__ = ["RepositoryFile"]

FILE = "config.pbtxt"


class RepositoryFile:
    """The control of one model through its file; see :class:`tuner.adapters.triton.change.ModelControl`.

    Args:
        reader: The server.
        repository: The folder of all models, as it is seen from here.
        model: The model's name.

    Raises:
        InvalidInput: The folder has no such model.
    """

    def __init__(self, reader: Reader, repository: Path, model: str) -> None:
        folder = repository / model
        if model in (".", "..") or not folder.is_dir():
            raise InvalidInput(
                "TARGET repository", f"{repository} has no model '{model}'", "give the folder of all models"
            )
        self._reader = reader
        self._file = folder / FILE
        self._found = self._written = self._read()  # the operator's text, and the last of anybody we know of
        self._original = self._loaded = normal_form(reader.config())  # what the server makes of these

    def config(self) -> ModelConfig:
        """Return what the server runs."""
        return self._reader.config()

    def ready(self) -> bool:
        """Whether the model answers requests."""
        return self._reader.ready()

    def load(self, config: Mapping[str, Any], timeout: float) -> None:
        """Write a configuration and wait until the server runs it; if it does not, put the file back.

        Raises:
            Refused: The server did not take it in time, or the file cannot be written.
            AdapterError: The server cannot be asked.
        """
        before = self._read()
        self._adopt(before)
        text = self._found if normal_form(config) == self._original else _text(config)
        try:
            self._write(text)
        except StorageError as error:
            raise Refused(f"{error}; the old configuration still serves") from error
        try:
            if not comes_true(lambda: serves(self, config), timeout):
                hint = "either it refuses it (see its log), or it does not poll"
                raise Refused(f"Triton did not take {self._file} within {timeout:g} s; {hint}")
        except BaseException:  # also Ctrl-C leaves the file as it was
            self._write(before)
            raise
        self._written, self._loaded = text, normal_form(config)

    def _adopt(self, text: str | None) -> None:
        """Note a text of the operator's that is not what we wrote last, if the server runs it already."""
        running = normal_form(self._reader.config())
        if text != self._written and running != self._loaded:
            self._found, self._original = text, running

    def _read(self) -> str | None:
        """Return the file's text; None if there is none and Triton makes up the configuration itself."""
        try:
            return self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"{self._file} cannot be read: {error}") from error

    def _write(self, text: str | None) -> None:
        if text is None:
            self._file.unlink(missing_ok=True)
            return
        new = not self._file.exists()
        write_for_server(self._file, text)
        if new:  # Triton may run as another user
            self._file.chmod(0o644)


def _text(config: Mapping[str, Any]) -> str:
    try:
        message = ParseDict(dict(config), model_config_pb2.ModelConfig())
    except ParseError as error:
        raise Refused(f"the configuration has a field that this version does not know: {error}") from error
    return str(text_format.MessageToString(message))
