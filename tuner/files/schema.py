"""What the models of YAML files share: groups of known fields, strict numbers, mistakes at their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic import model_validator as check_model
from pydantic_core import InitErrorDetails, PydanticCustomError

__all__ = ["NotNegative", "Positive", "Some", "StrictPart", "mistake"]


def _some(value: Any) -> Any:
    """Return a list or group that is not empty; pydantic's own check would also blame one with mistakes."""
    if not value:
        raise ValueError("needs at least one")
    return value


Some = AfterValidator(_some)
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


def mistake(problem: str, *place: str | int) -> InitErrorDetails:
    """Return one mistake at a place inside the field or group that is being checked."""
    error = PydanticCustomError("value_error", "Value error, {problem}", {"problem": problem})
    return InitErrorDetails(type=error, loc=place, input=None)
