"""Makes the environments in which agents are trained and compared, from plain values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tuner.errors import InvalidInput
from tuner.option import options_of
from tuner.setting import Setting

if TYPE_CHECKING:
    import gymnasium as gym

    from tuner.agents.load_levels import LoadLevels

__all__ = ["LIVE", "check_arguments", "environments", "make_environment"]

LIVE = "tuner/Live-v0"
"""Acts on a real server, which `tuner run` is for."""


def environments() -> list[str]:
    """Return the ids of the simulated environments."""
    import gymnasium

    import tuner.envs  # noqa: F401  (registers them)

    return sorted(name for name in gymnasium.registry if name.startswith("tuner/") and name != LIVE)


def make_environment(name: str, arguments: Mapping[str, Any], levels: LoadLevels) -> gym.Env[Any, Any]:
    """Make an environment.

    Args:
        name: Its id, or the target of a simulated server, such as ``sim://mlp``.
        arguments: Plain values, by the names of its arguments; ``server`` and ``scenario`` are what their
            files hold.
        levels: Names the load levels.

    Raises:
        InvalidInput: There is no such environment (lists those there are), it does not take an argument, a
            value is unusable, or the target is a live server.
        AdapterError: The target cannot be opened.
    """
    import gymnasium

    check_arguments(name, arguments)
    values = {key: _object(key, value) for key, value in arguments.items()}
    if _is_target(name):
        _check_simulated(name)
        values["target"], name = name, LIVE
    try:
        return gymnasium.make(name, **values, levels=levels, disable_env_checker=True)
    except InvalidInput as error:
        raise error.__cause__ or error from None  # environments name Python parameters; here are options


def check_arguments(name: str, arguments: Iterable[str]) -> None:
    """Check that there is an environment, and that it takes arguments of these names.

    Raises:
        InvalidInput: There is no such environment (lists those there are), or it does not take an argument.
    """
    known = environments()
    if name not in known and not _is_target(name):
        use = f"use {', '.join(known)}, or a simulated target such as sim://mlp"
        raise InvalidInput("--env", f"there is no environment '{name}'", use)
    taken, options = _parameters(LIVE if _is_target(name) else name), options_of(Setting)
    for argument in arguments:
        if argument not in taken:
            flag = options[argument].flag if argument in options else f"--{argument}"
            raise InvalidInput(flag, f"means nothing in {name}", "leave it out")


def _is_target(name: str) -> bool:
    return "://" in name


def _check_simulated(target: str) -> None:
    """Check that the server of a target lives in virtual time: to learn takes hundreds of windows.

    Raises:
        InvalidInput: It does not, or the target is unusable.
        AdapterError: It cannot be opened.
    """
    from tuner.profiler.attachment import attach

    with attach(target, grids={}) as attachment:
        if not attachment.simulated:
            raise InvalidInput("--env", f"{target} is a live server", "use `tuner run`, which protects it")


def _parameters(name: str) -> set[str]:
    """The names of the arguments of an environment."""
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    entry = gymnasium.spec(name).entry_point
    creator: Callable[..., Any] = load_env_creator(entry) if isinstance(entry, str) else entry  # type: ignore[assignment]
    return set(inspect.signature(creator).parameters)


def _object(argument: str, value: Any) -> Any:
    """Return the object that a plain value stands for."""
    if argument == "server" and isinstance(value, Mapping):
        from tuner.envs.simulator.models import model_from_json

        return model_from_json(value)
    if argument == "scenario" and isinstance(value, Mapping):
        from tuner.cluster.scenario import Scenario

        return Scenario.model_validate(value)
    if argument == "grids":
        return {name: tuple(grid) for name, grid in value.items()}
    return value
