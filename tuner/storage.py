"""Writes files so that they are either complete or unchanged."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tuner.errors import StorageError

__all__ = ["make_folder", "make_folder_of", "replace_file", "write_atomically"]


def replace_file(path: Path, data: bytes) -> None:
    """Write a file. A crash leaves either the old or the new content.

    Raises:
        OSError: The folder is missing, not writable, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # also Ctrl-C leaves nothing behind
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Write a text file as :func:`replace_file` does.

    Raises:
        StorageError: The folder is missing, not writable, or the disk is full.
    """
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; choose another folder"
        ) from error


def make_folder(path: Path, setting: str) -> Path:
    """Create a folder for results and check that it can be written.

    Raises:
        StorageError: It cannot be created or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".write-test.{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        problem = error.strerror or str(error)
        raise StorageError(f"{setting}: cannot write to {path}: {problem}; choose another folder") from error
    return path


def make_folder_of(file: Path, setting: str) -> Path:
    """Create the folder for a file that is to be written later, and check that it can be.

    Returns:
        The folder.

    Raises:
        StorageError: The folder cannot be created or written, or the file's name is that of a folder.
    """
    if file.is_dir():
        raise StorageError(f"{setting}: {file} is a folder; write the name of a file")
    return make_folder(file.absolute().parent, setting)
