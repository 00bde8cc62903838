"""Options of value objects: what they are called, how text is read, and functions that take keywords."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field

import pytest

from tuner.errors import InvalidInput
from tuner.option import build, keywords, option, options_of, part


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A part."""

    spokes: int = field(default=32, metadata=option("spokes", kind=int, read=int, help="How many."))


@dataclass(frozen=True, kw_only=True)
class Bell:
    """A part that may be missing."""

    tone: str = field(metadata=option("tone", help="Such as c."))


@dataclass(frozen=True, kw_only=True)
class Bicycle:
    """A whole with two parts, and a field without an option."""

    wheel: Wheel = field(default_factory=Wheel, metadata=part(Wheel))
    bell: Bell | None = field(default=None, metadata=part(Bell))
    gears: tuple[int, ...] = field(
        default=(),
        metadata=option(
            "gears", "--gear", kind=list[str], read=lambda texts: tuple(map(int, texts)), help=""
        ),
    )
    owner: str = "nobody"


def test_options_of_parts_are_options_of_the_whole() -> None:
    """In the order of the fields; a flag is the name with hyphens unless it says otherwise."""
    options = options_of(Bicycle)

    assert list(options) == ["spokes", "tone", "gears"]
    assert [one.flag for one in options.values()] == ["--spokes", "--tone", "--gear"]


def test_text_is_read_and_values_are_taken_as_they_are() -> None:
    """A part is made where one of its options is given, and None stands for not given."""
    assert build(Bicycle, {"spokes": "28", "gears": ["1", "7"]}) == Bicycle(
        wheel=Wheel(spokes=28), gears=(1, 7)
    )
    assert build(Bicycle, {"spokes": 28, "tone": "c", "gears": None}) == Bicycle(
        wheel=Wheel(spokes=28), bell=Bell(tone="c")
    )


def test_what_is_not_given_is_that_of_the_base() -> None:
    """Also within parts, and where no option leads."""
    base = Bicycle(wheel=Wheel(spokes=20), owner="Ada")

    assert build(Bicycle, {"tone": "d"}, base) == Bicycle(
        wheel=Wheel(spokes=20), bell=Bell(tone="d"), owner="Ada"
    )


OWN = Bicycle(owner="Ada")


@keywords(OWN, "spokes", "tone")
def ride(bicycle: Bicycle, *, miles: int = 1) -> tuple[Bicycle, int]:
    """Return what was given."""
    return bicycle, miles


def test_a_function_takes_the_object_or_its_options() -> None:
    """Keywords go before what the object says, and the object before the function's own."""
    mine = Bicycle(wheel=Wheel(spokes=20), owner="me")

    assert ride() == (OWN, 1)
    assert ride(spokes=28, miles=3) == (Bicycle(wheel=Wheel(spokes=28), owner="Ada"), 3)
    assert ride(mine, tone="c") == (Bicycle(wheel=Wheel(spokes=20), bell=Bell(tone="c"), owner="me"), 1)
    assert ride(bicycle=mine) == (mine, 1)


def test_an_object_of_another_kind_is_refused() -> None:
    """By the name of the argument."""
    with pytest.raises(InvalidInput, match="bicycle: 'tandem' is no `Bicycle`"):
        ride("tandem", tone="c")


def test_its_signature_lists_them() -> None:
    """With the values that hold where nothing is given; other options are refused."""
    parameters = inspect.signature(ride).parameters

    assert {name: one.default for name, one in parameters.items()} == {
        "bicycle": OWN, "spokes": 32, "tone": None, "miles": 1
    }  # fmt: skip
    with pytest.raises(TypeError, match="gears"):
        ride(gears=["1"])
