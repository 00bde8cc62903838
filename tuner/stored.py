"""Files of checked plain values: the base of everything that is stored as JSON and read back."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tuner.errors import StorageError
from tuner.storage import write_atomically

__all__ = ["Part", "Stored"]


class Part(BaseModel):
    """A part of a file: unknown fields and infinite numbers are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Stored(Part):
    """A whole file."""

    what: ClassVar[str] = "file"
    """What a person calls such a file."""

    def save(self, path: Path) -> None:
        """Write the file whole or not at all.

        Raises:
            StorageError: The folder cannot be written.
        """
        write_atomically(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file.

        Raises:
            StorageError: It cannot be read, is damaged, or is of another version.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise StorageError(f"{cls.what} {path}: {error.strerror or error}") from error
        except ValidationError as error:
            raise StorageError(f"{cls.what} {path}: not a {cls.what} of this version") from error
