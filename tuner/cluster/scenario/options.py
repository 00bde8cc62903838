"""A policy and its options as a file gives them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tuner.errors import InvalidInput
from tuner.files.schema import mistake
from tuner.scheduling.catalogue import options_of

__all__ = ["check_policy", "make_options", "option_names"]


def check_policy(name: str, usable: Collection[str], *, use: str = "") -> None:
    """Check the policy that a file names.

    Args:
        name: As the file has it.
        usable: Those that may stand there.
        use: What for, in the message that there is none, such as " for queries".

    Raises:
        ValueError: It is none of them, or that of another package, which cannot be used.
    """
    if name not in usable:
        raise ValueError(f"there is no {name!r}{use}; use one of {', '.join(usable)}")
    try:
        options_of(name)
    except InvalidInput as error:
        raise ValueError(str(error).removeprefix("policy: ")) from None


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
