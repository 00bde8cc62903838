"""Server models in files, JSON or YAML by their suffix: the base of every server model."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from tuner.errors import InvalidInput, StorageError
from tuner.files.json_text import parse_json
from tuner.files.storage import read_file, write_atomically

__all__ = ["ModelFile", "is_yaml"]

LARGEST = 10_000_000
"""Bytes of a file in JSON."""


class ModelFile:
    """Base of frozen dataclasses that describe a server. A field that a file leaves out keeps its default.

    Every one has a field ``kind``, a literal by which a file says what server it describes.
    """

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

        from tuner.files.yaml_file import problem_of

        try:
            return TypeAdapter(cls).validate_python(dict(values))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if part != cls.__name__)
            fields = ", ".join(item.name for item in dataclasses.fields(cls))  # type: ignore[arg-type]
            unknown = first["type"] == "unexpected_keyword_argument"
            problem = "there is no such field" if unknown else problem_of(first)
            raise InvalidInput(f"{source} {place}".strip(), problem, f"the fields are {fields}") from None

    def save(self, path: Path) -> None:
        """Write the file that :meth:`load` reads: YAML if its name ends so, else JSON.

        Raises:
            StorageError: The file cannot be written.
        """
        if not is_yaml(path):
            write_atomically(path, json.dumps(self.to_json(), indent=2) + "\n")
            return
        from ruamel.yaml import YAML

        text = io.StringIO()
        YAML().dump(self.to_json(), text)
        write_atomically(path, text.getvalue())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that :meth:`save` wrote.

        Raises:
            InvalidInput: There is no such file, it is not JSON or YAML, or a field is unusable.
        """
        if not is_yaml(path):
            return cls.from_json(read_values(path), str(path))
        from pydantic import RootModel

        from tuner.files.yaml_file import load_yaml

        model: Self = load_yaml(path, RootModel[cls]).root  # type: ignore[valid-type]
        return model


def is_yaml(path: Path) -> bool:
    """Whether a file is YAML by its name."""
    return path.suffix.lower() in {".yaml", ".yml"}


def read_values(path: Path) -> dict[str, Any]:
    """Return what a file holds, not checked but for being an object.

    Raises:
        InvalidInput: There is no such file, or it holds something else.
    """
    if is_yaml(path):
        from pydantic import RootModel

        from tuner.files.yaml_file import load_yaml

        try:
            return load_yaml(path, RootModel[dict[str, Any]]).root
        except StorageError as error:
            raise InvalidInput("server", str(error)) from error
    try:
        values = parse_json(read_file(path, LARGEST))
    except OSError as error:
        raise InvalidInput("server", f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidInput("server", f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InvalidInput("server", f"{path} does not hold an object", 'write {"name": "mlp", ...}')
    return values


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in sorted(value.items())}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
