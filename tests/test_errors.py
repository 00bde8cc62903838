"""Errors reach other processes as they are."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from tuner import errors
from tuner.errors import InvalidInput, TunerError, UnknownModel


def _all_kinds(kind: type[TunerError] = TunerError) -> Iterator[type[TunerError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _all_kinds(child)


def _make(kind: type[TunerError]) -> TunerError:
    if kind is UnknownModel:
        return UnknownModel("resnet", ["mlp", "cnn"])
    if issubclass(kind, InvalidInput):
        return kind("--slo", "it is 0", "use more")
    return kind("the server said no")


@pytest.mark.parametrize("kind", list(_all_kinds()), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_in_another_process(kind: type[TunerError]) -> None:
    """One that could not be copied would end the whole pool of workers with a traceback."""
    error = _make(kind)

    there = copy.copy(error)  # takes the same way as pickle: __reduce_ex__

    assert type(there) is kind
    assert str(there) == str(error)
    assert vars(there) == vars(error)


@pytest.mark.parametrize("kind", list(_all_kinds()), ids=lambda kind: kind.__name__)
def test_an_error_made_of_one_says_the_same(kind: type[TunerError]) -> None:
    """So gymnasium's `AsyncVectorEnv` raises what a worker raised; that was a `TypeError` of ours."""
    error = _make(kind)

    again = kind(error)

    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_renamed_error_names_the_other_setting() -> None:
    error = InvalidInput("--slo", "it is 0", "use --slo or --objective").renamed({"--slo": "slo"})

    assert str(error) == "slo: it is 0; use slo or --objective"
    assert error.setting == "slo"
