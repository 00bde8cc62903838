"""Makes the virtual environment of a program that is compared with ours, once, in the cache folder.

Such programs require other versions of our libraries, so each has a Python of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tuner.adapters.embedded.cache import built_folder, run_pip
from tuner.errors import AdapterError

__all__ = ["virtualenv_of"]


def virtualenv_of(name: str, requirements: Sequence[str]) -> Path:
    """Return the folder of a virtual environment with some packages; make it first if it is not there.

    The scripts in its ``bin`` cannot be started, because the folder is filled under another name. Its Python,
    ``bin/python``, can, and so can compiled programs that a package brings.

    Args:
        name: Whose it is.
        requirements: What is installed in it, with versions.

    Raises:
        AdapterError: The packages cannot be installed; the message says why.
        StorageError: The cache folder cannot be written.
    """

    def fill(folder: Path) -> None:
        command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        made = subprocess.run(command, check=False, capture_output=True, text=True)
        if made.returncode:
            raise AdapterError(f"no virtual environment can be made for {name}: {made.stderr.strip()[-200:]}")
        python = str(folder / "bin" / "python")
        run_pip(["--python", python, "install", "--only-binary=:all:", *requirements], name)

    builder = "\n".join((sys.version, *requirements)).encode()
    return built_folder(f"rival-{name.lower().replace(' ', '-')}", builder, fill)
