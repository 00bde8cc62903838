"""What all functions that make environments have in common: rendering, pickling, and errors for Python."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from tuner.envs.serving import Remade, ServingEnv
from tuner.errors import InvalidInput
from tuner.option import options_of
from tuner.setting import Setting

__all__ = ["makes_environments"]

Made = TypeVar("Made", bound=Remade)
Rest = ParamSpec("Rest")

PARAMETERS = {one.flag: name for name, one in options_of(Setting).items()}
"""Options of the command line -> what they are called in Python."""


def makes_environments(make: Callable[Rest, Made]) -> Callable[..., Made]:
    """Let a function that makes an environment also take ``render_mode``.

    What it makes can be pickled: unpickling makes it again, with the same arguments, before its first reset.
    An unusable argument is called by its Python name in the error.
    """

    @functools.wraps(make)
    def wrapper(*given: Any, render_mode: str | None = None, **arguments: Any) -> Made:
        modes = ServingEnv.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            raise InvalidInput(
                "render_mode", f"there is no '{render_mode}'", f"use one of {', '.join(modes)}"
            )
        try:
            env = make(*given, **arguments)
        except InvalidInput as error:
            raise error.renamed(PARAMETERS) from error
        env.render_as(render_mode)
        env.made_by = functools.partial(wrapper, *given, render_mode=render_mode, **arguments)
        return env

    signature = inspect.signature(make)
    mode = inspect.Parameter("render_mode", inspect.Parameter.KEYWORD_ONLY, default=None)
    named = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    rest = [one for one in signature.parameters.values() if one.kind is inspect.Parameter.VAR_KEYWORD]
    wrapper.__signature__ = signature.replace(parameters=[*named, mode, *rest])  # type: ignore[attr-defined]
    wrapper.metadata = ServingEnv.metadata  # type: ignore[attr-defined]  # where gymnasium looks for modes
    return wrapper
