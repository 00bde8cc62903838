"""What the command line makes of options before a command sees them, and what it says of mistakes in them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeGuard

import typer
from typer.core import TyperCommand, TyperOption

from tuner.cli.paths import check_paths, label
from tuner.errors import InvalidInput
from tuner.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Stopped", "UsageError", "UserCommand", "check_alone", "usage_text"]

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""What Typer raises for a command line that it cannot read. Its own name for it changes between versions."""


class Stopped(Exception):
    """A command was ended by Ctrl-C; Typer would take a `KeyboardInterrupt` and say nothing."""


class UserCommand(TyperCommand):
    """A command that checks its options before it runs.

    An option is given once, unless it may be repeated. Numbers are finite. A file that the command writes is
    no file that it reads, or that it writes for another option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words after the command's name."""
        if ctx.resilient_parsing:  # a shell completes a line that is not yet whole: nothing is wrong with it
            return super().parse_args(ctx, args)
        written, _, given = self.make_parser(ctx).parse_args(list(args))
        for option in filter(_is_option, given):
            if not (option.multiple or option.is_flag) and given.count(option) > 1:
                raise typer.BadParameter("is given twice; give it once", param=option)
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # pydantic's, of what Typer reads
            value = written.get(getattr(error.param, "name", ""))
            value = ", ".join(value) if isinstance(value, list) else value
            if _is_nan(value):  # it is within no bounds, but that is not what is wrong
                error.message = f"'{value}' is not a number"
            elif value is not None and f"'{value}'" not in error.message:
                problem = error.message.replace("Input should be", "must be").split(", unable")[0]
                error.message = f"'{value}' {problem}"
            raise
        for option in filter(_is_option, self.params):
            for number in _numbers(ctx.params.get(option.name or "")):
                if not math.isfinite(number):
                    raise typer.BadParameter(f"{number} is not a finite number", param=option)
        check_paths(self.params, written, ctx.params)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Stopped from error


def check_alone(ctx: typer.Context, option: str, *beside: str) -> None:
    """Check that nothing was given that means nothing with an option.

    Args:
        ctx: What the user wrote.
        option: The option, which was given.
        beside: The names of the parameters that mean something with it.

    Raises:
        InvalidInput: Something was; names the first.
    """
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        given = source is not None and source.name == "COMMANDLINE"
        if given and parameter.name not in beside and label(parameter) != option:
            raise InvalidInput(label(parameter), f"means nothing with {option}", "leave it out")


def usage_text(error: Any) -> str:
    """Return what is wrong with a command line, as one sentence that begins with the option."""
    context, parameter = error.ctx, getattr(error, "param", None)
    if not isinstance(error, typer.BadParameter) or parameter is None:
        path = context.command_path if context is not None else "tuner"
        return f"{one_line(error.format_message()).rstrip('.')}; see `{path} --help`"
    return f"{label(parameter)}: {one_line(error.message).rstrip('.') or 'is missing; give one'}"


def _is_option(parameter: object) -> TypeGuard[TyperOption]:
    return isinstance(parameter, TyperOption)


def _is_nan(value: object) -> bool:
    try:
        return isinstance(value, str) and math.isnan(float(value))
    except ValueError:
        return False


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _numbers(one)
