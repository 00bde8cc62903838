"""Writes files so that they are either complete or unchanged, and reads them without waiting for anybody."""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
import threading
from contextlib import suppress
from pathlib import Path

from tuner.errors import StorageError

__all__ = [
    "make_folder",
    "make_folder_of",
    "read_file",
    "read_to_the_letter",
    "replace_file",
    "unfinished_copies",
    "write_atomically",
    "write_for_server",
]


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


def read_to_the_letter(path: Path) -> str:
    """Read a text with its own line ends: :func:`write_for_server` must know it again, and may put it back.

    Raises:
        OSError: It is missing or cannot be read.
        UnicodeDecodeError: It is no text in UTF-8.
    """
    return path.read_bytes().decode()


def replace_file(
    path: Path, data: bytes, *, same_readers: bool = False, instead_of: bytes | None = None
) -> None:
    """Write a file; if it is a link, the file that it leads to. A crash leaves the old or the new content.

    Its mode stays as it was; its owner and its group do, as far as we may give files away.

    Args:
        path: The file.
        data: Its content.
        same_readers: Leave the file as it is where somebody could not read it any more.
        instead_of: What the file must still contain; None for anything.

    Raises:
        PermissionError: Somebody could not read it any more.
        OSError: The folder is missing, not writable, or the disk is full, or something else has this name:
            root would put a file in the place of ``/dev/stdout``.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file, but a folder, a pipe or a device")
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f"{_beginning(path)}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            if path.exists():
                _give(file.fileno(), before := path.stat())
                if same_readers and not _still_read(before, os.fstat(file.fileno())):
                    problem = "its server could not read it any more; chmod o+r, or run as its owner"
                    raise PermissionError(errno.EPERM, problem)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if instead_of is not None and path.read_bytes() != instead_of:
            raise OSError(errno.EBUSY, "somebody else has changed it meanwhile, and that stays")
        temporary.replace(path)
    except BaseException:  # also Ctrl-C leaves nothing behind
        temporary.unlink(missing_ok=True)
        raise


def _beginning(path: Path) -> str:
    """Return how the name of a copy begins: with all of the file's name it could be too long for a name."""
    return f".{path.name[:50]}"


def unfinished_copies(path: Path) -> list[Path]:
    """Return the copies that :func:`replace_file` makes beside a file, and a killed process leaves there.

    Raises:
        OSError: The folder cannot be read.
    """
    path = Path(os.path.realpath(path))
    copy = re.compile(rf"{re.escape(_beginning(path))}\.\d+\.\d+")
    return [child for child in path.parent.iterdir() if copy.fullmatch(child.name)]


def _give(descriptor: int, before: os.stat_result) -> None:
    """Give a new file the owner, the group and the mode of the one before, as far as we may."""
    try:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    except OSError:
        with suppress(OSError):  # all but root may choose among their own groups only
            os.fchown(descriptor, -1, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _still_read(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether the owner and the group of a file can read the one in its place, which has the same mode."""
    if before.st_mode & stat.S_IROTH:
        return True
    by_group = bool(before.st_mode & stat.S_IRGRP)
    if by_group and after.st_gid != before.st_gid:
        return False
    if before.st_uid in (after.st_uid, 0):  # root reads everything
        return True
    return by_group and _is_member(before.st_uid, before.st_gid)


def _is_member(user: int, group: int) -> bool:
    try:
        entry = pwd.getpwuid(user)
    except KeyError:  # such as that of a container
        return False
    return group in os.getgrouplist(entry.pw_name, entry.pw_gid)


def write_for_server(path: Path, text: str, *, instead_of: str | None = None) -> None:
    """Write a file of a server, which may run as another user, as :func:`replace_file` does.

    Args:
        path: The file.
        text: Its new text.
        instead_of: The text that it must still have, as :func:`read_to_the_letter` returns it; None for any.

    Raises:
        StorageError: The folder is missing, not writable, or the disk is full, the server could not read the
            file any more, or somebody else has changed it. The file is as it was.
    """
    before = instead_of.encode() if instead_of is not None else None
    try:
        replace_file(path, text.encode(), same_readers=True, instead_of=before)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


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
