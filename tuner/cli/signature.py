"""Signatures of commands: a value object among the parameters becomes the options of its fields.

Typer reads the options of a command from the signature of its function, one parameter each. A command here
takes value objects instead, and :func:`fields_as_options` shows Typer their fields::

    @fields_as_options
    def run(target: Target, setting: Annotated[Setting, Fields("slo", "window")], seed: Seed = 0) -> None:

has the argument TARGET and the options ``--slo``, ``--window`` and ``--seed``, in this order, and `run` gets
a :class:`~tuner.setting.Setting`. The fields of such an object say themselves what their options are called
(:mod:`tuner.option`). A dataclass of the command line has its options as annotations, as Typer's functions
have them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

from tuner.option import Option, build, fields_of

__all__ = ["OWN", "Fields", "fields_as_options", "typer_option"]

EMPTY = inspect.Parameter.empty
OWN = "the environment's own"
"""Shown as the default of what is left to an environment."""


class Fields:
    """Says in the annotation of a value object which options take its place.

    Args:
        names: The options in the order of the help; all in the order of the fields if none is named.
        of: The kind of object, where the annotated type is a dictionary. The command then gets what the user
            has given, as it was written, by the options' names: others complete it.
        help: The command's own help of some options, by their names, where theirs is not true of it.
    """

    def __init__(self, *names: str, of: type | None = None, help: Mapping[str, str] | None = None) -> None:
        self.names = names
        self.of = of
        self.help = help or {}


class Slot(NamedTuple):
    """One parameter of a command's function."""

    seen: list[inspect.Parameter]
    """The parameters that Typer sees for it."""
    make: Callable[[Mapping[str, Any]], Any]
    """Makes its value from theirs."""


def fields_as_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose signature has the fields of value objects in the place of the objects."""
    slots = {
        name: _slot(name, parameter.annotation, parameter.default)
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items()
    }

    def command(**values: Any) -> None:
        function(**{name: slot.make(values) for name, slot in slots.items()})

    functools.update_wrapper(command, function)
    del command.__wrapped__  # type: ignore[attr-defined]  # Typer would look through to the function
    seen = [parameter for slot in slots.values() for parameter in slot.seen]
    command.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    return command


def typer_option(kind: type, name: str) -> Any:
    """Return the Typer option of one field of a value object, for an annotation."""
    return _as_typer(fields_of(kind)[name][0])


def _slot(name: str, annotation: Any, default: Any) -> Slot:
    """Return the slot of a parameter: of a value object, or of one that Typer knows itself."""
    kind, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    mark = next((mark for mark in marks if isinstance(mark, Fields)), Fields())
    if mark.of is not None:
        return _slot_as_written(mark.of, mark.names)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return Slot([_parameter(name, annotation, default)], lambda values: values[name])
    if options := fields_of(kind):
        seen = [_field_parameter(*options[one], own_help=mark.help.get(one)) for one in mark.names or options]
        return Slot(seen, lambda values: build(kind, {one.name: values[one.name] for one in seen}))
    return _slot_of_dataclass(kind, mark.names, default)


def _slot_of_dataclass(kind: Any, names: tuple[str, ...], default: Any) -> Slot:
    """Return the slot of a dataclass whose options are annotations; a default object has their defaults."""
    hints = get_type_hints(kind, include_extras=True)
    inner = {
        field.name: _slot(
            field.name,
            hints[field.name],
            _default(field) if default is EMPTY else getattr(default, field.name),
        )
        for field in fields(kind)
    }
    seen = [parameter for slot in inner.values() for parameter in slot.seen]
    if names:
        seen.sort(key=lambda parameter: names.index(parameter.name))
    return Slot(seen, lambda values: kind(**{name: slot.make(values) for name, slot in inner.items()}))


def _slot_as_written(kind: type, names: tuple[str, ...]) -> Slot:
    """Return the slot of a dictionary: what the user wrote for options of an object that others complete."""
    known = fields_of(kind)
    seen = [
        _parameter(name, Annotated[known[name][0].kind | None, _as_typer(known[name][0], OWN)], None)
        for name in names
    ]
    return Slot(seen, lambda values: {name: values[name] for name in names if values[name] is not None})


def _field_parameter(option: Option, field: Field[Any], own_help: str | None) -> inspect.Parameter:
    """Return the parameter of one field; the command may have a help of its own for it."""
    if own_help is not None:
        option = replace(option, help=own_help)
    default = option.usual or _default(field)
    kind = option.kind | None if default is None else option.kind
    return _parameter(option.name, Annotated[kind, _as_typer(option)], default)


def _default(field: Field[Any]) -> Any:
    """The default of a field as Typer takes it: None where it is empty, nothing where there is none."""
    if field.default_factory is not MISSING:
        return field.default_factory() or None
    return EMPTY if field.default is MISSING else field.default


def _as_typer(option: Option, shown: str | None = None) -> Any:
    return typer.Option(
        option.flag,
        metavar=option.metavar,
        min=option.least,
        max=option.most,
        help=option.help,
        show_default=shown or True,
    )


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
