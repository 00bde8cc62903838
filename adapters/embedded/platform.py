"""What a machine must be for a server's binaries to run on it."""

from __future__ import annotations

import platform
import sys

from tuner.errors import UnsupportedPlatform

__all__ = ["require_linux", "require_python"]

Version = tuple[int, int]


def require_linux(what: str, fix: str = "") -> None:
    """Check that this is Linux on x86-64.

    Args:
        what: What needs it: ``the embedded Triton runs on``.
        fix: What the user can do instead.

    Raises:
        UnsupportedPlatform: It is not.
    """
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        raise UnsupportedPlatform(_joined(f"{what} Linux on x86-64 only, this is {system} {machine}", fix))


def require_python(what: str, oldest: Version, newest: Version, fix: str = "") -> None:
    """Check the version of Python.

    Args:
        what: What needs it: ``the embedded Triton works with``.
        oldest: Oldest version that works: major and minor number.
        newest: Newest version that works.
        fix: What the user can do instead.

    Raises:
        UnsupportedPlatform: It is another one.
    """
    if not oldest <= sys.version_info[:2] <= newest:
        versions = " to ".join(".".join(map(str, version)) for version in (oldest, newest))
        problem = f"{what} Python {versions}, this is {platform.python_version()}"
        raise UnsupportedPlatform(_joined(problem, fix))


def _joined(problem: str, fix: str) -> str:
    return f"{problem}; {fix}" if fix else problem
