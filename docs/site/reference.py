"""Writes the pages of the site's reference, from the objects that the program itself uses.

Nothing here is a copy: commands come from the command line's own tree, fields from the models that check
files, metrics from the registries that export them, paths from the web server's own OpenAPI document.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from tuner.duration import format_duration

__all__ = ["PYTHON", "pages"]

PYTHON = {
    "Knobs, measurements, objectives": (
        "tuner.knobs",
        "tuner.measurement",
        "tuner.objective",
        "tuner.setting",
    ),
    "Adapters": ("tuner.adapters", "tuner.profile"),
    "Agents": ("tuner.agents", "tuner.agents.catalogue"),
    "Environments": ("tuner.envs",),
    "Measuring": ("tuner.profiler",),
    "Deciding": ("tuner.control", "tuner.control.decide.rules"),
    "Clusters and workloads": ("tuner.cluster", "tuner.scheduling", "tuner.workload"),
    "Contracts to test against": ("tuner.testing",),
    "Errors": ("tuner.errors",),
}
"""Title of a page -> the modules whose public names are on it."""
COMMANDS = "reference/commands.md"


def pages() -> dict[str, str]:
    """Return the text of each page, by its path in the documentation."""
    found = {
        COMMANDS: _commands(),
        "reference/exit-codes.md": _exit_codes(),
        "reference/files.md": _files(),
        "reference/metrics.md": _metrics(),
        "reference/http.md": _paths(),
    }
    names = []
    for title, modules in PYTHON.items():
        names.append(title.lower().replace(",", "").replace(" ", "-"))
        found[f"reference/python/{names[-1]}.md"] = _python(title, modules)
    listed = "\n".join(f"python/{name}" for name in names)
    found["reference/python.md"] = (
        f"# Python\n\nThe names that packages export.\n\n```{{toctree}}\n{listed}\n```\n"
    )
    return found


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# Commands


def _commands() -> str:
    import typer

    from tuner.command import app

    root = typer.main.get_command(app)
    parts = ["# Commands\n\nWhat `tuner COMMAND --help` prints, for every command.\n\n"]
    parts += [_command(path, command) for path, command in leaves("tuner", root)]
    return "".join(parts)


def leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, with the words that call it."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, child in command.commands.items():
        yield from leaves(f"{path} {name}", child)


def _command(path: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join(
        [path, *(p.metavar or p.name.upper() for p in arguments), "[OPTIONS]" if options else ""]
    )
    parts = [f"## {path}\n\n```text\n{usage.strip()}\n```\n\n{_plain(command.help)}\n\n"]
    if command.epilog:
        parts.append(f"{_plain(command.epilog)}\n\n")
    if arguments:
        rows = [[f"`{p.metavar or p.name.upper()}`", _plain(p.help)] for p in arguments]
        parts.append(_table(["argument", "meaning"], rows))
    if options:
        parts.append(_table(["option", "default", "meaning"], [_option(p) for p in options]))
    return "".join(parts)


def _option(option: Any) -> list[str]:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if not option.is_flag:
        names += f" {option.metavar or _kind(option.type_descriptor.annotation)}"
    shown = option.show_default if isinstance(option.show_default, str) else _default(option.default)
    default = "needed" if option.required else shown
    return [names, default, _plain(option.help) + _bounds(option.min, option.max)]


def _kind(annotation: Any) -> str:
    names = {int: "INTEGER", float: "NUMBER", str: "TEXT"}
    known = [names[kind] for kind in [annotation, *get_args(annotation)] if kind in names]
    return known[0] if known else "VALUE"


def _bounds(least: Any, most: Any) -> str:
    if least is None and most is None:
        return ""
    if most is None:
        return f" At least {_number(least)}."
    return f" At most {_number(most)}." if least is None else f" {_number(least)} to {_number(most)}."


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def _default(value: Any) -> str:
    if value is None or value is False or value in ((), []) or callable(value):
        return ""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, list | tuple):
        return ", ".join(f"`{one}`" for one in value)
    return "on" if value is True else f"`{value}`"


def _plain(text: str | None) -> str:
    """Return help without the markup of terminals; commands in it stand in code."""
    return inspect.cleandoc(text or "").replace("[bold]", "`").replace("[/bold]", "`").replace("\\[", "[")


def _exit_codes() -> str:
    from tuner.cli.exit_code import ExitCode

    rows = [[f"`{code.value}`", code.meaning] for code in ExitCode]
    return (
        "# Exit codes\n\n"
        + _table(["code", "meaning"], rows)
        + (
            "Every error that is foreseen is one sentence that says what was written, what is allowed and "
            "where. A traceback, which ends with code 1 too, is a mistake of servetune: please report it.\n"
        )
    )


# Files


def _files() -> str:
    from tuner.cluster.scenario import Scenario
    from tuner.control.daemon.config import DaemonConfig
    from tuner.dispatch.config import DispatchConfig
    from tuner.planning.packing.form import ClusterFile
    from tuner.planning.partition.form import PartitionFile
    from tuner.planning.queries.query import Query

    files: Mapping[str, tuple[str, type[BaseModel]]] = {
        "The daemon's file": (
            "`tuner daemon FILE.yaml`; see [keep many servers](../daemon.md)",
            DaemonConfig,
        ),
        "The dispatcher's file": (
            "`tuner dispatch FILE.yaml`; see [the dispatcher](../dispatch.md)",
            DispatchConfig,
        ),
        "A scenario": (
            "`tuner simulate`, `tuner goodput`, `tuner plan instances`; see [simulate](../simulate.md)",
            Scenario,
        ),
        "A cluster to pack": ("`tuner plan cluster`; see [pack models](../plan-cluster.md)", ClusterFile),
        "Models to divide": (
            "`tuner plan partition`; see [divide models](../plan-partition.md)",
            PartitionFile,
        ),
        "A query": ("`tuner plan query`; see [split an SLO](../plan-query.md)", Query),
    }
    parts = [
        "# Files\n\nThe fields of the YAML files that commands read. A field that is not known, or a value "
        "that is not allowed, ends a command with one sentence that names file, line and field.\n\n"
    ]
    for title, (use, root) in files.items():
        parts.append(f"## {title}\n\n{use}.\n\n")
        for model in _sections(root):
            name = "" if model is root else f"### {title}: `{model.__name__}`\n\n{_first_line(model)}\n\n"
            parts.append(name + _table(["field", "default", "meaning"], list(_fields(model))))
    return "".join([*parts, _server_models()])


def _server_models() -> str:
    """Return the constants of simulated servers, which `tuner calibrate` fits and prints."""
    from tuner.envs.simulator.server import ServerModel
    from tuner.envs.simulator.tfserving_cpu import TFServingCPU
    from tuner.envs.simulator.tfserving_gpu import TFServingGPU

    parts = [
        "## A server model\n\nWhat `tuner calibrate` writes, and `tuner train --server` and "
        "`sim://MODEL?server=FILE` read; see [train](../train.md#fit-a-model-of-your-server).\n\n"
    ]
    for model in (ServerModel, TFServingCPU, TFServingGPU):
        words = _attribute_words(model)
        rows = [
            [f"`{name}`", _field_default(value, ""), words[name].replace("``", "`")]
            for name, value in asdict(model()).items()
        ]
        title = f"### A server model: `{model.kind}`\n\n{_first_line(model)}\n\n"
        parts.append(title + _table(["constant", "default", "meaning"], rows))
    return "".join(parts)


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _sections(root: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a model and those within it, each once."""
    found = [root]
    for model in found:
        for field in model.model_fields.values():
            found += [one for one in dict.fromkeys(_models(field.annotation)) if one not in found]
    return found


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _fields(model: type[BaseModel]) -> Iterator[list[str]]:
    words = _attribute_words(model)
    for name, field in model.model_fields.items():
        meaning = words.get(name, "")
        allowed = (
            [f"`{value}`" for value in get_args(field.annotation)]
            if get_origin(field.annotation) is Literal
            else []
        )
        limits = {
            key: getattr(m, key)
            for m in field.metadata
            for key in ("gt", "ge", "lt", "le")
            if hasattr(m, key)
        }
        inner = [f"`{one.__name__}`" for one in dict.fromkeys(_models(field.annotation))]
        notes = [
            meaning.replace("``", "`"),
            f"One of {', '.join(allowed)}." if allowed else "",
            " ".join(f"{_RELATION[key]} {_number(value)}." for key, value in limits.items()),
            f"See {', '.join(inner)} below." if inner else "",
        ]
        default = (
            "needed"
            if field.is_required()
            else _field_default(field.get_default(call_default_factory=True), meaning)
        )
        yield [f"`{field.alias or name}`", default, " ".join(filter(None, notes))]


_RELATION = {"gt": "More than", "ge": "At least", "lt": "Less than", "le": "At most"}


def _field_default(value: Any, meaning: str) -> str:
    if value is None or value in ((), {}, "") or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, float) and meaning.rstrip(".").endswith(", s"):
        return f"`{value / 86400:g}d`" if value >= 86400 else f"`{format_duration(value)}`"
    if isinstance(value, tuple):
        return f"`{':'.join(map(str, value))}`" if isinstance(value[0], str) else ", ".join(map(str, value))
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _attribute_words(model: type) -> dict[str, str]:
    """Return the sentences under the fields of a class and its bases."""
    from tuner.control.daemon.config import GuardSection
    from tuner.control.decide.limits import GuardLimits

    found = dict(_words_below(GuardLimits)) if issubclass(model, GuardSection) else {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith("tuner."):
            found |= _words_below(base)
    return found


def _words_below(kind: type) -> dict[str, str]:
    for node in ast.walk(_tree(kind.__module__)):
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return {
                field.target.id: " ".join(str(below.value.value).split())
                for field, below in zip(node.body, node.body[1:], strict=False)
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            }
    return {}


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


# What the daemon and the dispatcher answer


def _metrics() -> str:
    from tuner.control.web import Exporter
    from tuner.dispatch.metrics import Metrics
    from tuner.measurement import QUANTITIES

    measured = [
        [
            f"`{q.field}`",
            f"`servetune_{q.metric}{'_total' * q.counted}`",
            q.statistic,
            q.unit,
            f"{q.meaning}.",
        ]
        for q in QUANTITIES
    ]
    return (
        "# Metrics\n\n## What every window measures\n\n"
        "The names in `tuner observe --json`, and of the daemon's metrics.\n\n"
        + _table(["measured", "metric", "`statistic`", "unit", "meaning"], measured)
        + "## The daemon's `/metrics`\n\n"
        + _registered(Exporter())
        + "## The dispatcher's `/metrics`\n\n"
        + _registered(Metrics())
    )


def _registered(exporter: Any) -> str:
    labels = {
        name: collector._labelnames
        for collector, names in exporter.registry._collector_to_names.items()
        for name in names
        if hasattr(collector, "_labelnames")
    }
    rows = [
        [
            f"`{metric.name}{'_total' if metric.type == 'counter' else ''}`",
            metric.type,
            ", ".join(f"`{label}`" for label in labels.get(metric.name, ())),
            metric.documentation,
        ]
        for metric in exporter.registry.collect()
        if metric.name.startswith("servetune_")
    ]
    return _table(["metric", "type", "labels", "meaning"], rows)


def _paths() -> str:
    from unittest.mock import MagicMock

    from tuner.control.web.access import Access
    from tuner.control.web.server import WebServer

    class Described(WebServer):
        """A web server that has no daemon, and is never started."""

        def __init__(self) -> None:
            self._daemon = self.exporter = MagicMock()
            self._access = Access(None)

    document = Described().application().openapi()
    parts = ["# The daemon's HTTP API\n\nThe OpenAPI document is at `/openapi.json` of a running daemon.\n\n"]
    rows = [
        [f"`{verb.upper()}`", f"`{path}`", _sentence(call.get("description", ""))]
        for path, calls in document["paths"].items()
        for verb, call in calls.items()
    ]
    parts.append(_table(["", "path", "meaning"], rows))
    return "".join(parts)


def _sentence(text: str) -> str:
    return text.partition("\n\n")[0]


def _python(title: str, modules: Sequence[str]) -> str:
    parts = [
        f"## `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n\n" for name in modules
    ]
    return f"# {title}\n\n" + "".join(parts)
