"""Simulated servers in files: the base of every server model, read and written as plain values."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from tuner.errors import InvalidInput, StorageError

__all__ = ["ModelFile"]


class ModelFile:
    """Base of frozen dataclasses that describe a server. What a file leaves out keeps its default."""

    kind: ClassVar[str]
    """What server it describes."""
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values changed."""
        copy: Self = dataclasses.replace(self, **changes)  # type: ignore[type-var]  # subclasses are dataclasses
        return copy

    def check_numbers(self, *, positive: Sequence[str], shares: Sequence[str] = ()) -> None:
        """Check that every number is finite and >= 0, that some are > 0, and that some are <= 1.

        Raises:
            InvalidInput: One is not; names the field.
        """
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, (int, float)) and not (math.isfinite(value) and value >= 0):
                raise InvalidInput(f"server {item.name}", f"{value} is not a finite number >= 0")
        for name in positive:
            if getattr(self, name) <= 0:
                raise InvalidInput(f"server {name}", f"{getattr(self, name)} is not positive")
        for name in shares:
            if getattr(self, name) > 1:
                raise InvalidInput(f"server {name}", f"{getattr(self, name)} is not a share of 1")

    def to_json(self) -> dict[str, object]:
        """Return plain values, for a file that :meth:`from_json` reads."""
        values: dict[str, object] = dataclasses.asdict(self)  # type: ignore[call-overload]
        return {name: _plain(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, object], source: str = "server") -> Self:
        """Read the form that :meth:`to_json` writes.

        Raises:
            InvalidInput: A field is unknown or its value unusable; names ``source`` and the field.
        """
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_python(dict(values))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if part != cls.__name__)
            fields = ", ".join(item.name for item in dataclasses.fields(cls))  # type: ignore[arg-type]
            raise InvalidInput(
                f"{source} {place}".strip(), first["msg"], f"the fields are {fields}"
            ) from None

    def save(self, path: Path) -> None:
        """Write the file that :meth:`load` reads.

        Raises:
            StorageError: The file cannot be written.
        """
        try:
            path.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"server file {path}: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that :meth:`save` wrote.

        Raises:
            InvalidInput: There is no such file, it is not JSON, or a field is unusable.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidInput("server", f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise InvalidInput("server", f"{path} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise InvalidInput("server", f"{path} does not hold an object", 'write {"name": "mlp", ...}')
        return cls.from_json(values, str(path))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in sorted(value.items())}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
