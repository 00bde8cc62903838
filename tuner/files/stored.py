"""The base of everything that is stored as JSON: plain values that are checked when they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from tuner.errors import StorageError
from tuner.files.storage import read_file, write_atomically

__all__ = ["Part", "Stored", "with_fields"]

Model = TypeVar("Model", bound=BaseModel)
LARGEST = 500_000_000
"""Bytes of a file."""


class Part(BaseModel):
    """A part of a file: unknown fields and infinite numbers are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Stored(Part):
    """A whole file."""

    what: ClassVar[str] = "file"
    """The noun for such a file in messages."""

    def save(self, path: Path) -> None:
        """Write the file; it is written whole or not at all.

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
            return cls.model_validate_json(read_file(path, LARGEST))
        except OSError as error:
            raise StorageError(f"{cls.what} {path}: {error.strerror or error}") from error
        except ValidationError as error:
            raise StorageError(f"{cls.what} {path}: not a {cls.what} of this version") from error


def with_fields(fields: Mapping[str, Any]) -> Callable[[type[Model]], type[Model]]:
    """Decorate a model with fields that are made from a table.

    Args:
        fields: By name the type and the default, as :func:`pydantic.create_model` takes them.
    """

    def decorate(model: type[Model]) -> type[Model]:
        about: dict[str, Any] = {"__doc__": model.__doc__, "__module__": model.__module__}
        return create_model(model.__name__, __base__=model, **about, **fields)

    return decorate
