"""The files that a command line names: what is written is nothing that is read, and is written once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import typer

__all__ = ["WRITTEN", "check_paths", "label"]

WRITTEN = (
    "--csv", "--json", "--log", "--metrics", "--out", "--parts", "--plot", "--save-policy", "--tensorboard",
    "--trace",
)  # fmt: skip
"""Options for what is written: a file or, with one of the metavars `FOLDERS`, files in a folder."""
FOLDERS = ("DIR", "FOLDER")
SPECS = ("workload", "specs")
"""Parameters that are workloads: ``azure:FILE,burstiness=1``."""
NAMING = (*SPECS, "target", "env", "arrival")
"""Parameters that are no paths, but may have one in them: ``sim://mlp?server=FILE``, ``trace:FILE``."""


class Named(NamedTuple):
    """A file that the command line names."""

    path: str
    parameter: Any
    """What it is named by."""


def check_paths(parameters: Sequence[Any], written: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Check that no file is written over an input of the command, or over another of its outputs.

    Args:
        parameters: Of the command.
        written: What the user wrote for them, by name.
        given: Their values, by name.

    Raises:
        BadParameter: One would be, or a name is empty; names the option.
    """
    outputs: list[Named] = []
    folders: list[Named] = []  # what else is in one stays, and may be another output
    inputs: list[Named] = []
    for one in parameters:
        values = _each(given.get(one.name))
        if any(isinstance(value, Path) for value in values) and "" in _each(written.get(one.name)):
            raise typer.BadParameter("is empty; write the name of a file or folder", param=one)
        written_to = folders if one.metavar in FOLDERS else outputs
        named = written_to if one.opts[0] in WRITTEN else inputs
        named.extend(Named(path, one) for path in _paths(one.name, values))
    for index, (path, parameter) in enumerate(outputs):
        for use, others, clash in (
            ("is read for", inputs, _reaches),
            ("is written for", [*folders, *outputs[:index]], _same),
        ):
            if other := next((other for other in others if clash(path, other.path)), None):
                problem = f"{path} {use} {label(other.parameter)}, too, and would be overwritten"
                raise typer.BadParameter(f"{problem}; name another file", param=parameter)


def label(parameter: Any) -> str:
    """Return what users call a parameter: its flag, or the word for an argument in the help."""
    flag: str = parameter.opts[0]
    return flag if flag.startswith("-") else parameter.metavar or flag.upper()


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _paths(name: str, values: Sequence[Any]) -> Iterator[str]:
    """Yield the files that the values of a parameter name."""
    for value in values:
        if isinstance(value, Path):
            yield str(value)
        elif name in NAMING and isinstance(value, str):
            file = value.partition(":")[2]
            if name in SPECS:
                from tuner.workload.catalogue import split_file  # with numpy: not for every command

                file, _ = split_file(file)
            yield from filter(None, [file, *(text for _, text in parse_qsl(value.partition("?")[2]))])


def _reaches(path: str, other: str) -> bool:
    """Whether to write a file changes another one, or one that is there in a folder, such as a policy's."""
    within = os.path.exists(path) and Path(os.path.realpath(other)) in Path(os.path.realpath(path)).parents
    return within or _same(path, other)


def _same(one: str, other: str) -> bool:
    """Whether two names are of one file, which need not be there yet."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.realpath(one) == os.path.realpath(other)
