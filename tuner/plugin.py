"""What may be installed beside the package: adapters, agents and policies of others, and its own extras.

A package names in its ``pyproject.toml`` what it adds::

    [project.entry-points."tuner.backends"]
    kettle = "kettle.adapter:connect"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import ModuleType

from tuner.errors import InvalidInput

__all__ = [
    "AGENTS",
    "BACKENDS",
    "EXTRAS",
    "POLICIES",
    "added",
    "check_installed",
    "install_text",
    "installed",
    "load",
    "load_module",
    "missing_extra",
]

EXTRAS = {
    "matplotlib": "lab",
    "numba": "sim",
    "onnx": "demo",
    "onnxruntime": "demo",
    "opentelemetry": "tracing",
    "optuna": "lab",
    "pygrpc_native": "native",
    "tensorboard": "learn",
    "torch": "learn",
}
"""Package -> the extra of ours that installs it."""

BACKENDS = "tuner.backends"
"""The group of adapters, by the scheme of their targets."""
AGENTS = "tuner.agents"
"""The group of agents, by name."""
POLICIES = "tuner.policies"
"""The group of scheduling policies, by name."""


def installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; nothing of them is imported."""
    return {entry.name: entry for entry in entry_points(group=group)}


def added(group: str) -> list[str]:
    """Return the names in a group that other packages have added, for the help of a command."""
    own = ("tuner.",)
    return sorted(name for name, entry in installed(group).items() if not entry.value.startswith(own))


def load(entry: EntryPoint, setting: str) -> object:
    """Import what an entry point names.

    Args:
        entry: The entry point.
        setting: What made the user need it, for the error.

    Raises:
        InvalidInput: It cannot be imported, or cannot be called.
    """
    found = _imported(entry, setting)
    if not callable(found):
        raise _unusable(entry, setting, "which is no function or class")
    return found


def load_module(entry: EntryPoint, setting: str, function: str) -> ModuleType:
    """Import the module that an entry point names.

    Args:
        entry: The entry point.
        setting: What made the user need it, for the error.
        function: What the module must have.

    Raises:
        InvalidInput: It cannot be imported, is no module, or lacks that function.
    """
    found = _imported(entry, setting)
    if not isinstance(found, ModuleType):
        raise _unusable(entry, setting, "which is no module")
    if not callable(getattr(found, function, None)):
        raise _unusable(entry, setting, f"which has no function `{function}`")
    return found


def _imported(entry: EntryPoint, setting: str) -> object:
    try:
        return entry.load()
    except Exception as error:  # code of others: whatever it raises, it is not usable here
        if isinstance(error, ModuleNotFoundError) and (sentence := missing_extra(error)):
            raise InvalidInput(setting, f"'{entry.name}': {sentence}") from error
        reason = f"which cannot be imported ({type(error).__name__}: {error})"
        raise _unusable(entry, setting, reason) from error


def _unusable(entry: EntryPoint, setting: str, reason: str) -> InvalidInput:
    package = f" of the package {entry.dist.name}" if entry.dist is not None else ""
    problem = f"'{entry.name}' needs {entry.value}{package}, {reason}"
    return InvalidInput(setting, problem, "repair or remove that package")


def missing_extra(error: ModuleNotFoundError) -> str:
    """Say which extra to install; empty if what is missing belongs to none."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return ""
    return f"this needs {package}, which is not installed; {install_text(EXTRAS[package])}"


def check_installed(package: str, setting: str) -> None:
    """Check that a package of an extra is there, without running it.

    Args:
        package: Its name, or that of a module in it where several share the name.
        setting: What makes the user need it.

    Raises:
        InvalidInput: It is missing.
    """
    try:
        found = find_spec(package)
    except ModuleNotFoundError:  # not even what the module is in
        found = None
    if found is None:
        name = package.partition(".")[0]
        raise InvalidInput(setting, f"needs {name}, which is not installed", install_text(EXTRAS[name]))


def install_text(extra: str) -> str:
    """Say how an extra is installed; by its name alone it cannot be as long as we are not on PyPI."""
    return f"in a clone: pipx install --force '.[{extra}]', or pip install '.[{extra}]'"
