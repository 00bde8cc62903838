"""A folder of files as Kubernetes mounts a secret: links into another folder, which a renewal replaces."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

__all__ = ["mount"]


def mount(folder: Path, **files: bytes) -> None:
    """Put files into a folder, in the place of all that were mounted there before."""
    folder.mkdir(exist_ok=True)
    before = [one for one in folder.iterdir() if one.is_dir() and not one.is_symlink()]
    held = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    for name, content in files.items():
        (held / name).touch(0o600)
        (held / name).write_bytes(content)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..next").symlink_to(held.name)
    (folder / "..next").rename(folder / "..data")
    for one in before:
        shutil.rmtree(one)
