"""What the models of YAML files share: groups of known fields, strict numbers, mistakes at their place."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic import model_validator as check_model
from pydantic_core import InitErrorDetails, PydanticCustomError

__all__ = [
    "NamedOnce",
    "NotNegative",
    "Positive",
    "Some",
    "StrictPart",
    "address_like",
    "file_beside",
    "mistake",
    "named_once",
]


LAST_PORT = 65535


class Named(Protocol):
    """A part of a file that has a name."""

    @property
    def name(self) -> str:
        """The name."""


Parts = TypeVar("Parts", bound=Sequence[Named])


def _some(value: Any) -> Any:
    """Return a list or group that is not empty; pydantic's own check would also blame one with mistakes."""
    if not value:
        raise ValueError("needs at least one")
    return value


def named_once(parts: Parts) -> Parts:
    """Return the parts of a list; raises ValueError if two have one name."""
    commonest = Counter(part.name for part in parts).most_common(1)
    if commonest and commonest[0][1] > 1:
        name, times = commonest[0]
        raise ValueError(f"{name!r} is the name of {times} of them; give each its own")
    return parts


Some = AfterValidator(_some)
NamedOnce = AfterValidator(named_once)
Positive = Annotated[float, Field(strict=True, gt=0)]
NotNegative = Annotated[float, Field(strict=True, ge=0)]


class StrictPart(BaseModel):
    """A group of fields of a file: it knows its fields, refuses others, and does not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    RENAMED: ClassVar[Mapping[str, str]] = {}
    """Fields that had another name before, and their name now."""

    @check_model(mode="before")
    @classmethod
    def _names_are_of_today(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and (old := [name for name in cls.RENAMED if name in value]):
            details = [mistake(f"is called `{cls.RENAMED[name]}` now; rename it", name) for name in old]
            raise ValidationError.from_exception_data(cls.__name__, details)
        return value

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other, unchecked values, and without what was computed from the old ones."""
        copy = super().model_copy(update=update, deep=deep)
        for name in set(copy.__dict__) - set(type(self).model_fields):
            del copy.__dict__[name]
        return copy


def address_like(example: int) -> Callable[[Any], tuple[str, int]]:
    """Return a function that reads ``HOST:PORT``, where an IPv6 address stands in brackets.

    It raises ValueError for anything else.

    Args:
        example: The port that its message suggests.
    """

    def read(value: Any) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not int(port) <= LAST_PORT:
            suggestion = f"127.0.0.1:{example} or [::1]:{example}"
            raise ValueError(f"must be such as {suggestion}, but got {value!r}")
        return host.strip("[]"), int(port)

    return read


def file_beside(name: str | Path, info: ValidationInfo) -> Path:
    """Return the path of a file that is named in a file of the same folder; ValueError if it is missing."""
    path = Path((info.context or {}).get("folder", Path())) / name
    if not os.path.isfile(path):  # `Path.is_file` raises where it cannot be reached
        raise ValueError(f"there is no file {path}")
    return path


def mistake(problem: str, *place: str | int) -> InitErrorDetails:
    """Return one mistake at a place inside the field or group that is being checked."""
    error = PydanticCustomError("value_error", "Value error, {problem}", {"problem": problem})
    return InitErrorDetails(type=error, loc=place, input=None)
