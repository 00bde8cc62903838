"""The folder where downloads and built models are kept between runs.

A folder of the cache is filled under another name and renamed when it is complete. The kernel releases the
lock if the process dies. So neither two runs at once nor a kill in the middle leave a folder that is half
full.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from tuner.errors import AdapterError, StorageError

__all__ = ["Progress", "built_folder", "cache_folder", "cached_folder", "run_pip", "silent"]

DOWNLOAD_TIMEOUT = 1800.0

Progress = Callable[[str], None]
"""Is called with words for the user when something takes long."""


def silent(_message: str) -> None:
    """Show nothing."""


def cache_folder() -> Path:
    """Return where downloads and built models are kept; ``SERVETUNE_CACHE`` moves it."""
    chosen = os.environ.get("SERVETUNE_CACHE")
    return Path(chosen) if chosen else user_cache_path("servetune")


def cached_folder(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, and fill it first if it is not there.

    The folder appears when it is complete. If filling it fails, there is none.

    Raises:
        StorageError: The cache folder cannot be written.
    """
    root = cache_folder()
    place = root / name
    if place.is_dir():
        return place
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root / f"{name}.lock"):
            if not place.is_dir():
                _fill(root, place, fill)
    except OSError as error:
        raise StorageError(
            f"cache folder {root}: {error.strerror or error}; choose another with SERVETUNE_CACHE"
        ) from error
    return place


def built_folder(name: str, builder: bytes, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache that our own code fills.

    Args:
        name: What is built.
        builder: The code. When it changes, the folder is filled again, under another name.
        fill: Runs it.

    Raises:
        StorageError: The cache folder cannot be written.
    """
    digest = hashlib.sha256(builder).hexdigest()[:12]
    return cached_folder(f"{name}-{digest}", fill)


def _fill(root: Path, place: Path, fill: Callable[[Path], None]) -> None:
    for remains in root.glob(f"{place.name}.partial-*"):  # of a run that was killed, since we hold the lock
        shutil.rmtree(remains, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{place.name}.partial-", dir=root))
    try:
        fill(partial)
        partial.chmod(0o755)
        partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_pip(arguments: Sequence[str], what: str) -> None:
    """Run pip of this Python.

    Args:
        arguments: pip's own.
        what: The package, for the error.

    Raises:
        AdapterError: It failed, and the message has the end of its output; or this Python has no pip.
    """
    if find_spec("pip") is None:  # as in an environment that uv has made
        fix = f"in a clone: uv tool install --with pip '.[demo]', or {sys.executable} -m ensurepip"
        raise AdapterError(f"pip, which fetches {what}, is not installed beside servetune; {fix}")
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--quiet"]
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.CalledProcessError as error:
        raise AdapterError(f"pip cannot download {what}: {_last_line(error.stderr)}") from error
    except subprocess.TimeoutExpired as error:
        raise AdapterError(f"pip did not download {what} within {DOWNLOAD_TIMEOUT:g} s") from error


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line]
    return (errors or lines or ["it gave no reason"])[-1].strip()
