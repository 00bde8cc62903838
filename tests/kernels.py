"""Where the compiled functions are, and the tests of them, which also run without compilation."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numba

ROOT = Path(__file__).parents[1]
COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]  # set at run time by numba
"""Whether they are compiled in this process."""


@cache
def packages() -> frozenset[Path]:
    """The folders that hold compiled functions, relative to the root of the repository."""
    sources = [path for path in ROOT.iterdir() if (path / "__init__.py").exists() and path.name != "tests"]
    files = {file for source in sources for file in source.rglob("*.py")}
    found = {file.parent for file in files if b"_jit import njit" in file.read_bytes()}
    return frozenset(folder.relative_to(ROOT) for folder in found)


@cache
def folders_of_tests() -> frozenset[Path]:
    """The folders of their tests: `tests` mirrors the packages."""
    return frozenset(ROOT / "tests" / str(package).removeprefix("tuner/") for package in packages())
