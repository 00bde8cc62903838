"""Commands that take value objects: which options Typer sees, and what the command gets."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from tuner.cli.signature import Fields, fields_as_options, typer_option
from tuner.option import option

got: list[Any] = []


@dataclass(frozen=True, kw_only=True)
class Tea:
    """A core object: its fields say what their options are called."""

    leaves: str = field(metadata=option("leaves", help="Which leaves.", read=str.upper))
    minutes: float = field(
        default=3.0, metadata=option("minutes", "--steep", kind=float, least=1.0, help="How long.")
    )
    sugar: tuple[str, ...] = field(
        default=(), metadata=option("sugar", kind=list[str], read=tuple, help="Lumps.")
    )


@dataclass(frozen=True, kw_only=True)
class Table:
    """An object of the command line, with an option of its own and what is given for a core object."""

    seats: Annotated[int, typer.Option("--seats", help="How many.")] = 2
    given: Annotated[dict[str, Any], Fields("minutes", "sugar", of=Tea)] = field(default_factory=dict)


@fields_as_options
def serve(name: str, tea: Annotated[Tea, Fields("minutes", "leaves")], cups: int = 1) -> None:
    """Serve tea."""
    got.append((name, tea, cups))


ROUND = Table(seats=4)


@fields_as_options
def lay(table: Annotated[Table, Fields("sugar", "seats", "minutes")] = ROUND, cloth: bool = False) -> None:
    """Lay a table."""
    got.append((table, cloth))


def call(command: Any, *arguments: str) -> Any:
    """Run a command of its own; return what it got, or what Typer printed if it ended otherwise."""
    app = typer.Typer()
    app.command()(command)
    got.clear()
    result = CliRunner().invoke(app, arguments)
    return got[0] if got else result.output


@fields_as_options
def pour(
    tea: Annotated[Tea, Fields("leaves", "minutes", help={"minutes": "Or a clock."})],
) -> None:
    """Pour tea."""
    got.append(tea)


def test_a_command_may_have_its_own_help_of_an_option() -> None:
    """Where the field's own would not be true of it; all else stays, and so does the help elsewhere."""
    own, others = call(pour, "--help"), call(serve, "--help")

    assert "Or a clock." in own
    assert "How long." not in own
    assert "Which leaves." in own
    assert "How long." in others
    assert call(pour, "--leaves", "mint", "--steep", "5") == Tea(leaves="MINT", minutes=5.0)


def test_an_object_is_made_from_its_options() -> None:
    """Text is read, and what is not given has its default."""
    assert call(serve, "Ada", "--leaves", "mint", "--cups", "2") == ("Ada", Tea(leaves="MINT"), 2)
    assert call(serve, "Ada", "--leaves", "mint", "--steep", "5") == (
        "Ada",
        Tea(leaves="MINT", minutes=5.0),
        1,
    )


def test_typer_sees_the_options_in_the_order_named() -> None:
    """Those that are not named are no options; required ones, bounds and defaults are the fields'."""
    assert list(inspect.signature(serve).parameters) == ["name", "minutes", "leaves", "cups"]
    assert list(inspect.signature(lay).parameters) == ["sugar", "seats", "minutes", "cloth"]
    assert "Missing option '--leaves'" in call(serve, "Ada")
    assert "Invalid value for '--steep'" in call(serve, "Ada", "--leaves", "mint", "--steep", "0")
    shown = call(serve, "--help")
    assert "Serve tea." in shown
    assert "[default: 3.0]" in shown


def test_what_others_complete_is_kept_as_it_was_written() -> None:
    """Only what was given, by the options' names; a default object has the defaults of its options."""
    assert call(lay) == (Table(seats=4), False)
    assert call(lay, "--seats", "3", "--sugar", "1", "--sugar", "2", "--cloth") == (
        Table(seats=3, given={"sugar": ["1", "2"]}),
        True,
    )


def test_one_option_of_an_object_can_stand_alone() -> None:
    """With the name, the bounds and the help that it has everywhere, and a default of its own."""

    def pour(minutes: Annotated[float, typer_option(Tea, "minutes")] = 2.0) -> None:
        got.append(minutes)

    assert call(pour) == 2.0
    assert call(pour, "--steep", "4") == 4.0
    assert "Invalid value for '--steep'" in call(pour, "--steep", "0")
