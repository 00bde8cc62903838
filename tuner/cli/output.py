"""The files that commands write beside what they print: their options, and what is done with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tuner.errors import InvalidInput
from tuner.files.storage import make_folder, make_folder_of, write_atomically
from tuner.plugin import check_installed

__all__ = [
    "NO_FILES",
    "JsonFile",
    "PlotForm",
    "PlotFormat",
    "RunFiles",
    "check_figures",
    "check_file",
    "check_plot",
    "store_json",
]

PICTURES = (".png", ".svg", ".pdf")
"""Endings of the files that `--plot` writes."""


class PlotForm(StrEnum):
    """Of the figures that a command draws into a folder."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"


PlotFormat = Annotated[
    PlotForm | None,
    typer.Option(
        "--plot-format",
        help="Of the figures; svg and pdf can be scaled, for papers.",
        show_default=PlotForm.PNG.value,
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Also store the result here.")]


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Where the runs of agents go."""

    out: JsonFile = None
    table: Annotated[
        Path | None,
        typer.Option("--csv", metavar="OUT.csv", help="Store every window of every run, a row each."),
    ] = None


NO_FILES = RunFiles()


def check_file(path: Path | None, option: str) -> None:
    """Check, before any work is done, that a file can be written if it is wanted; creates its folder.

    Args:
        path: The file; None if none is wanted.
        option: Where the user named it.

    Raises:
        StorageError: It cannot be written.
    """
    if path is not None:
        make_folder_of(path, option)


def check_plot(path: Path | None) -> None:
    """Check, before any work is done, that the picture of `--plot` can be drawn if it is wanted.

    Raises:
        InvalidInput: The ending of its name is no format of pictures, or what draws is not installed.
        StorageError: It cannot be written.
    """
    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise InvalidInput("--plot", f"{path} is no picture", f"let its name end in {', '.join(PICTURES)}")
    check_installed("matplotlib", "--plot")
    check_file(path, "--plot")


def check_figures(folder: Path | None, form: PlotForm | None) -> None:
    """Check, before any work is done, that figures can be drawn into the folder of `--plot`, if wanted.

    Args:
        folder: The folder; None if none are wanted.
        form: The form that the user named.

    Raises:
        InvalidInput: What draws is not installed, or there is a form and no folder.
        StorageError: The folder cannot be written.
    """
    if folder is None and form is not None:
        raise InvalidInput("--plot-format", "is that of figures, and none are drawn", "give --plot DIR, too")
    if folder is not None:
        check_installed("matplotlib", "--plot")
        make_folder(folder, "--plot")


def store_json(path: Path | None, content: Mapping[str, Any]) -> None:
    """Store a result as JSON and print where, if it is wanted.

    Raises:
        StorageError: It cannot be written.
    """
    if path is not None:
        write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
        print(path)
