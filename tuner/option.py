"""Options: the names under which the fields of a value object are set from outside of Python.

Values that travel together are one frozen dataclass, such as :class:`tuner.setting.Setting`. Users set its
fields one by one: as options of a command (``--slo p95=30ms``), or as keyword arguments of an environment
(``slo="p95=30ms"``). Each field says once, in its metadata, what its option is called and how text is read.
The command line (:mod:`tuner.cli.signature`) and the environments (:func:`keywords`) take it from there. A
field may hold another such dataclass, whose options then count as the whole's (:func:`part`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, replace
from numbers import Real
from typing import Any, Concatenate, ParamSpec, TypeGuard, TypeVar

from tuner.errors import InvalidInput

__all__ = ["Option", "build", "is_number", "keywords", "option", "options_of", "part"]

Kind = TypeVar("Kind")
Result = TypeVar("Result")
Rest = ParamSpec("Rest")


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """How one field is set from outside."""

    name: str
    """As a keyword argument."""
    flag: str
    """On the command line."""
    help: str
    """What it means, in a line."""
    kind: Any = str
    """What the command line gives: ``str``, ``float``, ``Path``, ``list[str]``."""
    read: Callable[[Any], Any] | None = None
    """Makes the field's value from text, or from a list of texts."""
    metavar: str | None = None
    """Stands for a value in the help."""
    least: float | None = None
    most: float | None = None
    usual: str | None = None
    """What commands set where the user sets nothing, if that is not the field's default."""

    def value(self, given: Any) -> Any:
        """Return the field's value for what was given: text to be read, or the value itself."""
        written = isinstance(given, str | list)
        return self.read(given) if written and self.read is not None else given


def option(name: str, flag: str | None = None, **others: Any) -> dict[str, Option]:
    """Return the metadata of a field that an option sets.

    Args:
        name: As a keyword argument.
        flag: On the command line; the name with two hyphens if None.
        others: What else :class:`Option` has.
    """
    return {"option": Option(name=name, flag=flag or f"--{name.replace('_', '-')}", **others)}


def part(kind: type) -> dict[str, type]:
    """Return the metadata of a field that holds another dataclass with options."""
    return {"part": kind}


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, which a truth value is to Python, but to no user; text is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def fields_of(kind: type) -> dict[str, tuple[Option, Field[Any]]]:
    """Return the options of a dataclass and of its parts, in their order, each with the field that it sets.

    Where a part may be left out as a whole, so may each of its options.
    """
    found: dict[str, tuple[Option, Field[Any]]] = {}
    for field in fields(kind):
        if one := field.metadata.get("option"):
            found[one.name] = one, field
        elif inner := field.metadata.get("part"):
            optional = field.default is None
            found |= {
                name: (one, field if optional else own) for name, (one, own) in fields_of(inner).items()
            }
    return found


def options_of(kind: type) -> dict[str, Option]:
    """Return the options of a dataclass and of its parts by their names, in their order."""
    return {name: one for name, (one, _) in fields_of(kind).items()}


def build(kind: type[Kind], given: Mapping[str, Any], base: Kind | None = None) -> Kind:
    """Make a value object from what was given for its options.

    Args:
        kind: A dataclass whose fields have options.
        given: Values by the names of options, as text or as they are; None counts as not given.
        base: Has the values that are not given; the dataclass's defaults if None.

    Raises:
        InvalidInput: A value is unusable.
    """
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]  # a dataclass, which `type` cannot say
        if one := field.metadata.get("option"):
            if given.get(one.name) is not None:
                values[field.name] = one.value(given[one.name])
        elif inner := field.metadata.get("part"):
            within = {name: given[name] for name in options_of(inner) if given.get(name) is not None}
            if within:
                values[field.name] = build(inner, within, getattr(base, field.name, None))
    return kind(**values) if base is None else replace(base, **values)  # type: ignore[type-var]


def keywords(
    own: Kind, *names: str
) -> Callable[[Callable[Concatenate[Kind, Rest], Result]], Callable[..., Result]]:
    """Let a function that takes a value object also take some of its options, as keyword arguments.

    The object is the function's first argument and may be left out; what a keyword gives goes before it::

        @keywords(Setting(objective=Objective(slo=parse_slo("p95=30ms"))), "slo", "window")
        def watch(setting: Setting, *, episodes: int = 50) -> None: ...

        watch()
        watch(window=2.0, episodes=3)
        watch(setting, slo="p99=1s")

    Args:
        own: The object where none is given.
        names: The options that are taken.

    Raises:
        InvalidInput: When the function is called: the object is one of another kind, or a value is unusable.
    """

    def decorate(function: Callable[Concatenate[Kind, Rest], Result]) -> Callable[..., Result]:
        first, *others = inspect.signature(function).parameters.values()
        values = _values(own)
        taken = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=values.get(name))
            for name in names
        ]

        @functools.wraps(function)
        def wrapper(*positional: Kind, **arguments: Any) -> Result:
            given = {name: arguments.pop(name) for name in names if name in arguments}
            whole = positional[0] if positional else arguments.pop(first.name, own)
            if not isinstance(whole, type(own)):
                raise InvalidInput(first.name, f"{whole!r} is no `{type(own).__name__}`")
            return function(build(type(own), given, whole), *positional[1:], **arguments)  # type: ignore[arg-type]

        shown = [first.replace(default=own), *taken, *others]
        wrapper.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _values(whole: Any) -> dict[str, Any]:
    """Return the values of the options of an object and of its parts."""
    found: dict[str, Any] = {}
    for field in fields(whole):
        value = getattr(whole, field.name)
        if one := field.metadata.get("option"):
            found[one.name] = value
        elif "part" in field.metadata and value is not None:
            found |= _values(value)
    return found
