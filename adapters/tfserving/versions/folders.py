"""The version folders of a model. Those that we make have a marker, and only they are ever removed.

TensorFlow Serving looks every second for folders with numeric names, and assumes that they are complete. So a
version is put together under another name and renamed. Its files are hard links to those of the version that
it is made from: they need no space, and nothing is copied. Its marker says which version of the operator's it
was made from.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from tuner.adapters.tfserving.batching import FILE
from tuner.errors import AdapterError, Refused
from tuner.files.stored import Stored

__all__ = ["MARKER", "Marker", "Versions"]

MARKER = ".servetune.json"
PARTIAL = ".servetune-partial-"
REMOVED = ".servetune-removed-"
LARGEST_VERSION = 2**63 - 1
LARGEST_FILE = 1_000_000
"""A parameter file or marker of more bytes is not read."""
NO_LINKS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EACCES, errno.ENOSYS}
"""Errors of file systems that cannot make hard links, or not between two folders."""


class Marker(Stored):
    """What the marker in a folder of ours says."""

    what: ClassVar[str] = "marker"

    version: int = 1
    made_by: str = "servetune"
    number: int
    """The version that this folder is."""
    origin: int
    """The operator's version that it holds the files of."""
    batching: str | None
    """The operator's own parameters, which are needed if that version is deleted; None if it had none."""
    configuration: dict[str, float]


class Versions:
    """The folder of one model.

    Args:
        base: The folder, as it is seen from here.
    """

    def __init__(self, base: Path) -> None:
        self.base = base

    def numbers(self) -> list[int]:
        """Return the versions that are there, in order.

        Raises:
            AdapterError: The folder cannot be read.
        """
        return sorted(self._folders())

    def batching(self, number: int) -> str | None:
        """Return the text of a version's parameter file, None if it has none.

        Raises:
            AdapterError: The version is gone, or the file cannot be read.
        """
        folder = self._folder(number)
        try:
            return _read(folder / FILE)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"{folder / FILE} cannot be read: {error}") from error

    def marker(self, number: int) -> Marker | None:
        """Return the marker of a version if we made it, else None.

        Raises:
            AdapterError: It cannot be read: whose version that is, nobody knows.
        """
        folder = self._folders().get(number)
        if folder is None:
            return None
        try:
            marker = Marker.model_validate_json(_read(folder / MARKER))
        except (FileNotFoundError, UnicodeDecodeError, ValidationError, AdapterError):
            return None
        except OSError as error:
            raise AdapterError(f"{folder / MARKER} cannot be read: {error.strerror or error}") from error
        return marker if marker.made_by == "servetune" and marker.number == number else None

    def writable(self) -> bool:
        """Whether versions can be made here."""
        return os.access(self.base, os.W_OK | os.X_OK)

    def publish(self, source: int, marker: Marker, batching: str | None) -> None:
        """Make a version. It appears as a whole or not at all.

        Args:
            source: The version whose files it has.
            marker: Its number, and where it comes from.
            batching: The text of its parameter file; None for no file.

        Raises:
            Refused: It cannot be written; nothing is left of it.
        """
        if not 0 < marker.number <= LARGEST_VERSION:
            raise Refused(f"version {marker.number} is no possible number")
        partial = self.base / f"{PARTIAL}{os.getpid()}-{marker.number}"
        try:
            _link_tree(self._folder(source), partial)
            for name in (FILE, MARKER):
                (partial / name).unlink(missing_ok=True)  # a link: to write to it would change the source
            _write(partial / MARKER, marker.model_dump_json())
            if batching is not None:
                _write(partial / FILE, batching)
            # rename() replaces an empty folder of the same name without an error, so look first.
            if (self.base / str(marker.number)).exists():
                raise FileExistsError(errno.EEXIST, "somebody else has made it")
            partial.rename(self.base / str(marker.number))
        except OSError as error:
            problem = f"version {marker.number} cannot be made in {self.base}: {_reason(error)}"
            raise Refused(f"{problem}; the old configuration still serves") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def hide(self, number: int) -> Path:
        """Rename a version of ours so that the server no longer finds it; `show` and `discard` come after it.

        Raises:
            AdapterError: It is not ours, or cannot be renamed.
        """
        if self.marker(number) is None:
            raise AdapterError(f"version {number} was not made by servetune and is not removed")
        try:
            attempts = (self.base / f"{REMOVED}{os.getpid()}-{n}-{number}" for n in itertools.count())
            hidden = next(path for path in attempts if not path.exists())
            self._folder(number).rename(hidden)
        except OSError as error:
            raise AdapterError(f"version {number} cannot be removed: {error.strerror or error}") from error
        return hidden

    def show(self, hidden: Path) -> None:
        """Rename a hidden version back."""
        with contextlib.suppress(OSError):
            hidden.rename(self.base / hidden.name.rpartition("-")[2])

    def discard(self, hidden: Path) -> None:
        """Delete a hidden version."""
        shutil.rmtree(hidden, ignore_errors=True)

    def remove(self, number: int) -> None:
        """Remove a version of ours.

        Raises:
            AdapterError: It is not ours, or cannot be removed.
        """
        self.discard(self.hide(number))

    def remains(self) -> list[Path]:
        """Return what is on its way in or out; of a killed tuner, unless one is at work."""
        try:
            return [child for child in self.base.iterdir() if child.name.startswith((PARTIAL, REMOVED))]
        except OSError as error:
            raise AdapterError(f"{self.base}: {error.strerror or error}") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other tuners from changing the folder, and remove what a killed one left.

        Raises:
            Refused: Another one is changing it, or it cannot be opened.
        """
        try:
            # A folder can be locked, too: no file is left.
            folder = os.open(self.base, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise Refused(f"{self.base} cannot be changed: {error.strerror or error}") from error
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Refused(f"another tuner is changing {self.base}; let it finish") from error
            for remains in self.remains():
                shutil.rmtree(remains, ignore_errors=True)
            yield
        finally:
            os.close(folder)

    def _folders(self) -> dict[int, Path]:
        """Return version -> folder; the server takes names like 007, too."""
        try:
            named = [child for child in self.base.iterdir() if child.name.isascii() and child.name.isdigit()]
            return {int(child.name): child for child in named if child.is_dir()}
        except OSError as error:
            raise AdapterError(f"{self.base}: {error.strerror or error}") from error

    def _folder(self, number: int) -> Path:
        folder = self._folders().get(number)
        if folder is None:
            raise AdapterError(f"{self.base} has no version {number}; is it the model's base_path?")
        return folder


def _link_tree(source: Path, target: Path) -> None:
    """Make a folder whose files are hard links to those of another; symbolic links stay what they are."""
    shutil.copytree(source.resolve(), target, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copy2(source, target, follow_symlinks=False)


def _write(path: Path, text: str) -> None:
    """Write a new file and have it stored on disk, before the server can see it."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)  # the server may be another user


def _reason(error: OSError) -> str:
    """Return why something failed; of the many files of a copied folder, the first that did."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        return str(error.args[0][0][-1])
    return error.strerror or str(error)


def _read(path: Path) -> str:
    with path.open("rb") as file:
        body = file.read(LARGEST_FILE + 1)
    if len(body) > LARGEST_FILE:
        raise AdapterError(f"{path} has more than {LARGEST_FILE} bytes")
    return body.decode("utf-8")
