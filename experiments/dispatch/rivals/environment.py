"""Makes the environment in which a rival runs, once, in the cache folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tuner.adapters.embedded.cache import built_folder, run_pip
from tuner.errors import AdapterError
from tuner.experiments.dispatch.rivals.catalogue import BatchingServer

__all__ = ["python_of"]


def python_of(name: str, system: BatchingServer) -> Path:
    """Return the Python that runs a server; make its environment first if need be.

    Raises:
        AdapterError: Its packages cannot be installed; the message says why.
        StorageError: The cache folder cannot be written.
    """
    if not system.requirements:
        return Path(sys.executable)

    def fill(folder: Path) -> None:
        command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        made = subprocess.run(command, check=False, capture_output=True, text=True)
        if made.returncode:
            raise AdapterError(f"no environment can be made for {name}: {made.stderr.strip()[-200:]}")
        python = str(folder / "bin" / "python")
        run_pip(["--python", python, "install", "--only-binary=:all:", *system.requirements], name)

    digest = "\n".join((sys.version, *system.requirements)).encode()
    return built_folder(f"rival-{name.lower().replace(' ', '-')}", digest, fill) / "bin" / "python"
