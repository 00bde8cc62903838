"""``tuner plan prefix``: find the prefixes that models have in common, and cut the models there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.output import JsonFile, check_file, store_json

if TYPE_CHECKING:
    from onnx import ModelProto

    from tuner.planning.prefix import CommonPrefix

__all__ = ["EXAMPLES", "plan_prefix"]

EXAMPLES = "Example: [bold]tuner plan prefix cats.onnx dogs.onnx birds.onnx --parts parts[/bold]"
LARGEST_PART = 2_000_000_000
"""Bytes of a part's weights: a file of ONNX has less than 2 GiB, and the operations need some of it."""


def plan_prefix(
    files: Annotated[list[Path], typer.Argument(metavar="MODEL.onnx...", help="Two models or more.")],
    out: JsonFile = None,
    parts: Annotated[
        Path | None,
        typer.Option(
            "--parts", metavar="FOLDER", help="Write the prefixes and suffixes here, as ONNX models."
        ),
    ] = None,
    enough: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Part of the operations that must be shared.")
    ] = 0.5,
) -> None:
    """Find the prefixes that models share, to execute them in one batch.

    Models that were specialised from one network often differ in their last
    layers alone. Up to there, the requests of all can be executed in one
    batch (Nexus, section 6.3). See docs/plan-prefix.md.
    """
    from tuner.cli.console import make_console
    from tuner.files.storage import make_folder
    from tuner.planning.prefix import families
    from tuner.planning.prefix.onnx_model import load_onnx, read_onnx

    names = _names(files)
    check_file(out, "--json")
    if parts is not None:
        make_folder(parts, "--parts")
    models = {name: load_onnx(file) for name, file in zip(names, files, strict=True)}
    groups = families([read_onnx(model, name) for name, model in models.items()], enough)
    content = {"families": [_content(number, group) for number, group in enumerate(groups)]}
    make_console().print(_table(content))
    if parts is not None:
        for number, group in enumerate(groups):
            _check_parts(number, group, files, parts)
        for number, group in enumerate(groups):
            _write_parts(number, group, models, parts)
        print(parts)
    store_json(out, content)


def _names(files: list[Path]) -> list[str]:
    from tuner.errors import InvalidInput

    names = [file.stem for file in files]
    if len(names) < 2:
        raise InvalidInput("MODEL.onnx", "one model shares nothing", "name two or more")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput("MODEL.onnx", f"two files are named {twice}", "give each model a name of its own")
    return names


def _content(number: int, group: CommonPrefix) -> dict[str, Any]:
    whole = [graph.size(frozenset(graph.weights)) for graph in group.graphs]
    shared = len(group.graphs) > 1
    return {
        "name": f"prefix-{number}" if shared else None,
        "models": [graph.name for graph in group.graphs],
        "operations": group.operations if shared else 0,
        "share": group.share if shared else 0.0,
        "prefix_bytes": group.prefix_bytes if shared else 0,
        "suffix_bytes": [group.suffix_bytes(graph) for graph in group.graphs] if shared else whole,
        "bytes_alone": sum(whole),
    }


def _check_parts(number: int, group: CommonPrefix, files: list[Path], folder: Path) -> None:
    """Check that each part fits into a file, and that this is none of the models.

    Raises:
        InvalidInput: One does not.
    """
    from tuner.errors import InvalidInput

    if len(group.graphs) < 2:
        return
    sizes = {f"prefix-{number}": group.prefix_bytes}
    sizes |= {f"{graph.name}.suffix": group.suffix_bytes(graph) for graph in group.graphs}
    read = {os.path.realpath(file) for file in files}
    for name, size in sizes.items():
        if os.path.realpath(path := folder / f"{name}.onnx") in read:
            problem = f"{path} is read for MODEL.onnx, too, and would be overwritten"
            raise InvalidInput("--parts", problem, "name another folder")
        if size > LARGEST_PART:
            problem = f"{name} has {size / 2**20:,.4g} MiB of weights, more than a file of ONNX holds"
            raise InvalidInput("--parts", problem, "leave it out")


def _write_parts(number: int, group: CommonPrefix, models: dict[str, ModelProto], folder: Path) -> None:
    """Write a family's prefix and suffixes; a model that shares nothing is left as it is."""
    from tuner.files.storage import write_atomically
    from tuner.planning.prefix.onnx_model import cut_onnx

    if len(group.graphs) < 2:
        return
    names = [graph.name for graph in group.graphs]
    prefix, suffixes = cut_onnx([models[name] for name in names], group)
    assert prefix is not None, "a family shares operations"
    write_atomically(folder / f"prefix-{number}.onnx", prefix.SerializeToString())
    for name, suffix in zip(names, suffixes, strict=True):
        write_atomically(folder / f"{name}.suffix.onnx", suffix.SerializeToString())


def _table(content: dict[str, Any]) -> object:
    from tuner.cli.console import make_table, plain

    title = f"{sum(len(one['models']) for one in content['families'])} models by the prefix they share"
    table = make_table(title, ["models"], ["operations shared", "of all", "MiB alone", "MiB shared"])
    for one in content["families"]:
        together = one["prefix_bytes"] + sum(one["suffix_bytes"])
        table.add_row(
            plain(", ".join(one["models"])),
            str(one["operations"]),
            f"{one['share']:.0%}",
            f"{one['bytes_alone'] / 2**20:,.4g}",
            f"{together / 2**20:,.4g}",
        )
    return table
