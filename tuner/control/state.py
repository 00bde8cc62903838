"""The state file of a run: what must survive a crash of the server or of the tuner."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tuner.errors import StorageError
from tuner.storage import write_atomically

__all__ = ["RunState"]


class RunState(BaseModel):
    """The last good configuration of a target, and what was found when the tuner attached."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    version: int = 1
    target: str
    original: dict[str, float]
    """What the server ran before the tuner touched it."""
    current: dict[str, float]
    last_good: dict[str, float] | None = None
    window: int = 0

    def save(self, path: Path) -> None:
        """Write the file whole or not at all.

        Raises:
            StorageError: The folder cannot be written.
        """
        write_atomically(path, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> RunState:
        """Read a state file.

        Raises:
            StorageError: It cannot be read or is damaged.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise StorageError(f"state file {path}: {error.strerror or error}") from error
        except (ValidationError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise StorageError(f"state file {path}: damaged or of another version; remove it") from error
