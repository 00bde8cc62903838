"""Downloads TensorFlow for the embedded server once into the cache folder, unless the extra is installed.

It is not installed beside us, because only demo and tests need its 1.5 GB, and because a TensorBoard that
finds a TensorFlow imports it.
"""

from __future__ import annotations

import os
import sys
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import tuner
from tuner.adapters.embedded.cache import Progress, cached_folder, run_pip, silent
from tuner.adapters.embedded.platform import require_linux, require_python
from tuner.errors import AdapterError
from tuner.plugin import install_text

__all__ = ["python_path", "require_platform"]

PYTHONS = ((3, 11), (3, 13))
EXTRA = f"or install it yourself, {install_text('tfserving')}"


def require_platform() -> None:
    """Check that TensorFlow can run here.

    Raises:
        UnsupportedPlatform: It cannot; the message says what is missing.
    """
    if _installed():
        return
    require_linux("TensorFlow is fetched for", EXTRA)
    require_python("TensorFlow is fetched for", *PYTHONS, EXTRA)


def python_path(progress: Progress = silent) -> str:
    """Return the PYTHONPATH with which Python finds TensorFlow and us; download TensorFlow first if need be.

    Raises:
        AdapterError: It cannot be downloaded; the message names the extra.
        StorageError: The cache folder cannot be written.
    """
    ours = str(Path(tuner.__file__).parents[1])
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if _installed():
        return os.pathsep.join([*given, ours])
    return os.pathsep.join([str(_fetch(progress)), *given, ours])


def _installed() -> bool:
    return all(find_spec(name) is not None for name in ("tensorflow", "tensorflow_serving"))


def _fetch(progress: Progress) -> Path:
    requirements = resources.files("tuner.adapters.tfserving.standin") / "requirements.txt"
    versions = dict(
        line.split("==") for line in requirements.read_text().splitlines() if not line.startswith("#")
    )
    tensorflow = versions["tensorflow_cpu"]

    def fill(folder: Path) -> None:
        progress(f"downloading TensorFlow {tensorflow} (once; 1.5 GB on disk)")
        with resources.as_file(requirements) as file:
            options = [
                "install",
                "--no-deps",
                "--only-binary=:all:",
                "--target",
                str(folder),
                "-r",
                str(file),
            ]
            try:
                run_pip(options, f"TensorFlow {tensorflow}")
            except AdapterError as error:
                raise AdapterError(f"{error}; {EXTRA}") from error

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cached_folder(f"tensorflow-{tensorflow}-python{python}", fill)
