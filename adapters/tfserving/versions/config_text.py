"""The text of a model configuration file: how it is read, locked, and told from what we write ourselves.

Several models of a server may be tuned at once, each as a target of its own. So each changes its own entry
only, and one after the other: a file beside it is locked from the reading to the sending.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tuner.adapters.tfserving.schema import message
from tuner.errors import AdapterError, Refused
from tuner.files.storage import read_to_the_letter, unfinished_copies

__all__ = ["KEPT", "delete", "fixed", "is_his", "is_there", "lock_of", "locked", "read"]

KEPT = ".servetune-original"
"""What the name of the operator's own text ends with, beside the file."""
LOCK = ".servetune-lock"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other target changes a file, and keep them from it.

    Raises:
        Refused: There are no locks in the folder.
    """
    if not os.access(path.parent, os.W_OK):
        yield  # the file cannot be written either, and need not be where a server serves what is newest
        return
    # Not the folder: it may be the model's, which is locked for the whole of a change.
    lock = lock_of(path)
    try:
        descriptor = _take(lock)
    except OSError as error:
        raise Refused(f"{path} cannot be changed: {error.strerror or error}") from error
    try:
        _sweep(path)
        yield
    finally:
        try:
            with suppress(OSError):  # the next one takes it as it is
                lock.unlink()
        finally:
            os.close(descriptor)


def lock_of(path: Path) -> Path:
    """Return the file that is locked beside a file; whoever waited for it in vain leaves it."""
    return path.with_name(f"{path.name}{LOCK}")


def _sweep(path: Path) -> None:
    """Remove what a tuner has begun to write that was killed: whoever writes has the lock."""
    with suppress(OSError):
        for copy in [*unfinished_copies(path), *unfinished_copies(path.with_name(f"{path.name}{KEPT}"))]:
            copy.unlink()


def _take(lock: Path) -> int:
    """Wait until nobody else has a lock, and return its descriptor. Who had it has removed the file."""
    while True:
        descriptor = _open(lock)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:  # also Ctrl-C leaves nobody waiting
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(lock: Path) -> int:
    """Return a descriptor of a lock: for writing, which NFS wants, unless another user has made the file."""
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        return os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


def is_there(path: Path) -> bool:
    """Whether a file is there.

    Raises:
        AdapterError: That cannot be seen.
    """
    try:
        return path.exists()
    except OSError as error:
        raise AdapterError(f"{path}: {error.strerror or error}") from error


def delete(path: Path) -> None:
    """Remove a file, if it is there.

    Raises:
        AdapterError: It cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise AdapterError(f"{path} cannot be removed: {error.strerror or error}") from error


def read(path: Path) -> tuple[str, Any]:
    """Return the text of a file, and what it means.

    Raises:
        AdapterError: It cannot be read, or is no model configuration.
    """
    try:
        text = read_to_the_letter(path)
        return text, text_format.Parse(text, message("ModelServerConfig")())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise AdapterError(f"model configuration {path} cannot be read: {error}") from error


def is_his(text: str, kept: str) -> bool:
    """Whether the operator has written a file since we did: our texts have one form, and no comments.

    Args:
        text: The file's.
        kept: His text from before.
    """
    ours = text_format.MessageToString(text_format.Parse(text, message("ModelServerConfig")()))
    return text not in (ours, kept)


def fixed(config: Any) -> Any:
    """Return what no target changes: all but versions and labels."""
    config = deepcopy(config)
    for entry in config.model_config_list.config:
        entry.ClearField("version_labels")
        if entry.model_version_policy.HasField("specific"):
            entry.model_version_policy.specific.ClearField("versions")
    return config
