"""The file of a daemon that an experiment runs, in a folder of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["STATE", "daemon_file"]

STATE = "servetune.db"
"""What the daemon remembers, beside its file."""


@contextmanager
def daemon_file(targets: Sequence[Mapping[str, object]], *, serve: bool = False) -> Iterator[Path]:
    """Write a daemon's file, which is there for the length of a block.

    Args:
        targets: What the file says of each.
        serve: Whether it serves HTTP, on any port.
    """
    content: dict[str, object] = {"state": STATE, "targets": [dict(target) for target in targets]}
    if serve:
        content["http"] = {"listen": "127.0.0.1:0"}
    with tempfile.TemporaryDirectory(prefix="servetune-daemon-") as folder:
        path = Path(folder) / "servetune.yaml"
        path.write_text(json.dumps(content))  # which is YAML, too
        yield path
