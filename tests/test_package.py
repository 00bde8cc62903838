"""The package as a whole: what is installed, what imports cost, what the folders promise."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("envs", "agents", "profiler", "adapters", "experiments")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages() -> set[str]:
    """Every folder with an __init__.py, by its import name."""
    roots = {"tuner": ROOT / "tuner"} | {f"tuner.{name}": ROOT / name for name in FOLDERS}
    found = set()
    for name, root in roots.items():
        for file in root.rglob("__init__.py"):
            parts = file.parent.relative_to(root).parts
            if parts and name == "tuner" and parts[0] in FOLDERS:
                continue
            found.add(".".join([name, *parts]))
    return found


def test_packages_are_listed_by_hand_and_complete() -> None:
    """The hand-kept list in pyproject equals the folders, and one of files for the server's interpreter."""
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages() | {
        "tuner.adapters.triton.embedded.models"
    }


@pytest.mark.parametrize("name", FOLDERS)
def test_top_level_folders_are_linked_under_tuner(name: str) -> None:
    """Editable installs and static tools see tuner.<name> through a relative link."""
    link = ROOT / "tuner" / name

    assert link.is_symlink()
    assert str(link.readlink()) == f"../{name}"


@pytest.mark.parametrize("name", sorted(packages()))
def test_tables_of_contents_are_sorted(name: str) -> None:
    """Every __all__ of a package is sorted, and its module begins with a docstring."""
    path = name.removeprefix("tuner.") if name.split(".")[1:2] and name.split(".")[1] in FOLDERS else name
    tree = ast.parse((ROOT / path.replace(".", "/") / "__init__.py").read_text())
    listed = [
        n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
    ]

    assert ast.get_docstring(tree)
    for value in listed:
        names = ast.literal_eval(value)
        assert names == sorted(names, key=lambda n: (not n.isupper(), n)) or names == sorted(names)


def loaded_by(statement: str) -> set[str]:
    """The modules in memory after a statement, in a fresh interpreter."""
    code = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import tuner", {"numpy", "torch", "grpc", "numba", "matplotlib", "tensorflow"}),
        ("import tuner.command", {"numpy", "torch", "grpc", "numba", "matplotlib", "pydantic", "gymnasium"}),
        ("import tuner.profiler.attachment", {"torch", "numba", "matplotlib", "gymnasium"}),
        ("import tuner.control, tuner.agents", {"torch", "numba", "matplotlib", "gymnasium", "grpc"}),
    ],
)
def test_nothing_heavy_is_imported_early(statement: str, heavy: set[str]) -> None:
    """Start-up stays fast, and a watcher small."""
    assert not heavy & loaded_by(statement)
