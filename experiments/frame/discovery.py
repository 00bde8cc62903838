"""Finds the experiments by their declarations, without importing them.

To import all of them takes seconds, and somebody who asks for their names should not wait for that. So the
arguments of the decorator :func:`~tuner.experiments.frame.experiment.experiment` are read from the source.
"""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.abc import InspectLoader, PathEntryFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

import tuner.experiments
from tuner.errors import InvalidInput
from tuner.experiments.frame.about import LIVE, About

if TYPE_CHECKING:
    from tuner.experiments.frame.experiment import Experiment

__all__ = ["Declared", "declared", "find", "papers"]


DECORATOR = "experiment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """An experiment, and where it is declared."""

    about: About
    module: str
    kind: str
    """Name of its class."""

    def load(self) -> type[Experiment[Any, Any]]:
        """Import it."""
        kind: type[Experiment[Any, Any]] = getattr(import_module(self.module), self.kind)
        assert kind.about == self.about, (kind.about, self.about)
        return kind


@cache
def declared() -> dict[str, Declared]:
    """Return all experiments by name: those on live servers first, then paper by paper."""
    found: dict[str, Declared] = {}
    package = tuner.experiments
    for module in _modules(package.__path__, f"{package.__name__}."):
        for one in _declarations(module):
            assert one.about.name not in found, (one, found[one.about.name])
            found[one.about.name] = one
    ordered = sorted(found.values(), key=lambda one: (*_place(one.about.paper), _natural(one.about.name)))
    return {one.about.name: one for one in ordered}


def papers() -> dict[str, list[Declared]]:
    """Return the experiments grouped by paper."""
    groups: dict[str, list[Declared]] = {}
    for one in declared().values():
        groups.setdefault(one.about.paper, []).append(one)
    return groups


def find(name: str) -> Declared:
    """Return an experiment.

    Raises:
        InvalidInput: There is none of that name.
    """
    if name not in declared():
        raise InvalidInput("NAME", f"no experiment '{name}'", f"there are {', '.join(declared())}")
    return declared()[name]


def _modules(path: Iterable[str], prefix: str) -> Iterator[ModuleSpec]:
    """Find the modules below a folder. `pkgutil.walk_packages` would import the packages."""
    for info in pkgutil.iter_modules(path, prefix):
        assert isinstance(info.module_finder, PathEntryFinder), info
        spec = info.module_finder.find_spec(info.name)
        assert spec is not None, info
        if info.ispkg:
            yield from _modules(spec.submodule_search_locations or (), f"{info.name}.")
        else:
            yield spec


def _declarations(spec: ModuleSpec) -> Iterator[Declared]:
    """Read the decorators of a module's classes."""
    module = spec.name
    assert isinstance(spec.loader, InspectLoader), spec
    source = spec.loader.get_source(module) or ""
    if f"\n@{DECORATOR}(" not in source:  # most modules help others
        return
    for node in (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)):
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == DECORATOR:
                arguments = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
                yield Declared(about=About(**arguments), module=module, kind=node.name)


def _place(paper: str) -> tuple[bool, str]:
    return paper != LIVE, paper


def _natural(name: str) -> list[str | int]:
    """Sort ``fig9`` before ``fig10``."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
