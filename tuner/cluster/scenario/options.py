"""A policy's options as a scenario's file gives them."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tuner.files.schema import mistake
from tuner.scheduling.catalogue import options_of

__all__ = ["make_options", "option_names"]


def make_options(policy: str, options: dict[str, Any]) -> Any:
    """Return the options of a policy, checked.

    Raises:
        ValidationError: It has no such option.
        InvalidInput: A value makes no sense.
    """
    known = option_names(policy)
    unknown = [name for name in options if name not in known]
    if unknown:
        fix = f"use one of {', '.join(known)}" if known else "it has no options"
        details = [mistake(f"{policy} has no such option; {fix}", name) for name in unknown]
        raise ValidationError.from_exception_data("options", details)
    return _adapter(policy).validate_python(options)


@cache
def _adapter(policy: str) -> TypeAdapter[Any]:
    return TypeAdapter(options_of(policy))


def option_names(policy: str) -> list[str]:
    """Return the names of a policy's options."""
    return [field.name for field in fields(options_of(policy))]
