"""Writes files so that they are either complete or unchanged, and reads them without waiting for anybody."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

from tuner.errors import StorageError

__all__ = ["make_folder", "make_folder_of", "read_file", "replace_file", "write_atomically"]


def read_file(path: Path, most: int) -> bytes:
    """Read a regular file. A pipe could keep its reader waiting, and a device could go on for ever.

    Args:
        path: The file.
        most: Bytes that it may have.

    Raises:
        OSError: It is missing, is something else than a file, is larger, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe opens at once
    except ValueError as error:
        raise OSError(errno.EINVAL, "no file can have such a name") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file, but a folder, a pipe or a device")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most / 1e6:.3g} MB")
    return content


def replace_file(path: Path, data: bytes) -> None:
    """Write a file; if it is a link, the file that it leads to. A crash leaves the old or the new content.

    Who may read and write the file stays as it was.

    Raises:
        OSError: The folder is missing, not writable, or the disk is full, or something else has this name:
            root would put a file in the place of ``/dev/stdout``.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file, but a folder, a pipe or a device")
    path = Path(os.path.realpath(path))
    beginning = path.name[:50]  # with a number behind it the whole could be longer than a name may be
    temporary = path.with_name(f".{beginning}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # also Ctrl-C leaves nothing behind
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file as :func:`replace_file` does; a text in UTF-8.

    Raises:
        StorageError: The folder is missing, not writable, or the disk is full.
    """
    try:
        replace_file(path, content.encode() if isinstance(content, str) else content)
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
        StorageError: The folder cannot be created or written, or no file can have this name, or it is that of
            something else: a folder, a pipe or a device.
    """
    try:
        if not stat.S_ISREG(mode := file.stat().st_mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "no file, but a pipe or a device"
            raise StorageError(f"{setting}: {file} is {kind}; write the name of a file")
    except (FileNotFoundError, NotADirectoryError):
        pass  # it is not there yet; where its folder cannot be created, that is said below
    except OSError as error:
        problem = error.strerror or str(error)
        raise StorageError(f"{setting}: cannot write {file}: {problem}; choose another file") from error
    return make_folder(Path(os.path.realpath(file)).parent, setting)  # a link leads to a file elsewhere
