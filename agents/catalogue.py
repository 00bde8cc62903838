"""Makes and loads agents by name. Third parties add one with the entry point group ``tuner.agents``.

An entry point names a subclass of :class:`~tuner.agents.bookkeeper.Bookkeeper`, which is treated like ours,
or a function or class that is called as ``make(space, *, seed, levels, start, parameters) -> Agent``. If it
has an attribute ``load(folder, space, *, seed) -> Agent``, that reads what such an agent saved; see
``docs/agents.md``. Nothing heavy is imported before an agent is made.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tuner.agents.agent import Agent
from tuner.agents.constants import changed
from tuner.agents.load_levels import LoadLevels
from tuner.errors import InvalidInput
from tuner.knobs import KnobSpace
from tuner.plugin import AGENTS as GROUP
from tuner.plugin import added, installed, load
from tuner.printable import one_line

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from tuner.agents.bookkeeper import Bookkeeper
    from tuner.objective import Objective

__all__ = ["AGENTS", "agent_names", "load_agent", "make_agent"]

AGENTS: dict[str, str] = {
    "rrl": "region-based reinforcement learning: one window teaches about a whole region",
    "rrl_paper": "RRL as the paper writes it",
    "rrl_code": "RRL as its authors' published code has it",
    "q_learning": "plain Q-learning: a table, a window teaches about one configuration",
    "capes": "CAPES: deep Q-learning over single steps of single knobs, rewarded for changes of the cost",
    "capes_level": "CAPES rewarded for a low cost: stronger here than the authors' reward",
    "deeprm": "DeepRM: a small network learns a policy over such steps by REINFORCE",
    "random": "measures random configurations, then holds the best",
    "hill_climb": "step vectors as in the quick search of Triton's Model Analyzer",
    "tpe": "tree-structured Parzen estimator (Optuna), then holds the best",
    "gp": "Bayesian optimisation with a Gaussian process (Optuna), then holds the best",
    "safe_gp": "contextual safe Bayesian optimisation as in OnlineTune (BoTorch); tries only what looks safe",
    "clipper_aimd": "Clipper: raises the batch size until the SLO breaks, then lowers it by 10 %",
    "oracle": "knows what every configuration costs",
}
"""Name -> what it is, in one line."""

_CLASSES = {
    "capes": ("rivals.capes", "Capes"),
    "capes_level": ("rivals.capes", "CapesLevel"),
    "deeprm": ("rivals.deeprm", "DeepRM"),
    "random": ("rivals.random_search", "RandomSearch"),
    "hill_climb": ("rivals.hill_climb", "HillClimb"),
    "tpe": ("rivals.tpe", "Tpe"),
    "gp": ("rivals.gp", "Gp"),
    "safe_gp": ("rivals.safe_gp", "SafeGp"),
    "clipper_aimd": ("rivals.clipper_aimd", "ClipperAimd"),
    "oracle": ("rivals.oracle", "OracleAgent"),
}
"""Name -> module and class of the agents that are bookkeepers."""
FORMS_OF_RRL = ("rrl", "rrl_paper", "rrl_code", "q_learning")
"""Names of the agents that :mod:`tuner.agents.rrl` makes."""


def agent_names() -> list[str]:
    """Return the names of all agents that are installed, ours first."""
    return [*AGENTS, *(name for name in added(GROUP) if name not in AGENTS)]


def make_agent(
    name: str,
    space: KnobSpace,
    *,
    seed: int = 0,
    levels: LoadLevels | None = None,
    objective: Objective | None = None,
    expected: Callable[[float], np.ndarray] | None = None,
    start: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Agent:
    """Make an agent.

    Args:
        name: One of :func:`agent_names`.
        space: The configurations.
        seed: Of everything it draws; the same seed and the same windows give the same decisions.
        levels: The grid of arrival rates, whose points are the states.
        objective: What is minimised; RRL's estimator needs it, and the authors' code its SLO.
        expected: For the oracle: rate, requests/s -> expected cost of every configuration.   # (size,)
        start: Number of the configuration that a search begins with; the default one without it.
        parameters: Values for the agent's own constants, by name; all but its ``levels``.

    Raises:
        InvalidInput: There is no such agent or constant, or a value is unusable; or another package has given
            an agent a name of ours, or a name that the agent does not give itself.
    """
    wanted = _own(parameters)
    if not isinstance(space, KnobSpace):
        raise InvalidInput("space", f"{space!r} is no `KnobSpace`", "write KnobSpace([Knob(...), ...])")
    if start is not None:
        try:
            start = operator.index(start)
        except TypeError:
            problem = f"{start!r} is no number of a configuration"
            raise InvalidInput("start", problem, f"0 to {space.size - 1} are") from None
    if name in AGENTS:
        _check_unshared(name)
    if name in FORMS_OF_RRL:
        return _make_rrl(name, space, wanted, seed=seed, levels=levels, objective=objective)
    chosen = _named(name)
    if chosen is None:
        raise InvalidInput("agent", f"there is no '{name}'", f"use one of {', '.join(agent_names())}")
    if not _is_bookkeeper(chosen):
        make = cast(Callable[..., Agent], chosen)
        return _make_foreign(name, make, space, wanted, seed=seed, levels=levels or LoadLevels(), start=start)
    constants = changed(name, chosen.constants(start=start, levels=levels or LoadLevels()), wanted)
    if name == "oracle":
        agent = _make_oracle(chosen, space, constants, seed=seed, expected=expected)
    else:
        agent = chosen(space, constants, seed=seed)
    agent.objective = None if objective is None else str(objective)
    return agent


def load_agent(
    folder: Path,
    space: KnobSpace,
    *,
    objective: Objective | None = None,
    cores: float = math.nan,
    seed: int = 0,
) -> Agent:
    """Read a saved agent of any kind; it trains inside ``update``, so that runs repeat.

    Args:
        folder: Where it was saved.
        space: The knobs and grids it must be about.
        objective: What the costs of a policy that says so must be those of; None takes those of any.
        cores: Of the server's machine; NaN if nobody sees them.
        seed: Of exploration from now on.

    Raises:
        InvalidInput: It is about other knobs or grids, or for another objective, or its agent is not
            installed or cannot load it.
        StorageError: There is no policy, or it is damaged.
    """
    from tuner.agents.policy_file import check_objective, read_manifest

    manifest = read_manifest(Path(folder))
    if objective is not None:
        check_objective(Path(folder), manifest, objective)
    name = manifest.agent
    if name == "rrl":
        from tuner.agents.rrl import RRL

        return RRL.load(Path(folder), space, objective=objective, cores=cores, seed=seed, synchronous=True)
    chosen = _named(name)
    if chosen is None:
        known = ", ".join(agent_names())
        raise InvalidInput("agent", f"the policy in {folder} is of an unknown '{name}'", f"known: {known}")
    load = cast(Callable[..., Agent] | None, getattr(chosen, "load", None))
    if load is None:
        problem = f"the entry point of '{name}' cannot load the policy in {folder}"
        raise InvalidInput(
            "agent", problem, "let it name a Bookkeeper, or what has load(folder, space, *, seed)"
        )
    return load(Path(folder), space, seed=seed)


def _own(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters that a caller gave.

    Raises:
        InvalidInput: They are no mapping from names, or one sets the load levels: the agent would take those
            that it is told for other loads.
    """
    if not isinstance(parameters, Mapping | None):
        raise InvalidInput("parameters", f"{parameters!r} is no mapping", 'write such as {"noise": 0.2}')
    for constant in parameters or {}:
        if not isinstance(constant, str):
            raise InvalidInput(
                f"parameter {constant!r}", "its name is no text", 'write such as {"noise": 0.2}'
            )
        if constant.partition(".")[0] == "levels":
            raise InvalidInput(
                f"parameter {constant}", "the load levels are not the agent's own", "leave it out"
            )
    return dict(parameters or {})


def _make_foreign(
    name: str, make: Callable[..., Agent], space: KnobSpace, wanted: dict[str, Any], **others: Any
) -> Agent:
    """Call somebody's function. If it was given parameters, what it raises is taken for its refusal of them.

    Raises:
        InvalidInput: It raised, such as because it does not know one.
    """
    given = {**others, "parameters": dict(wanted)}  # the function may take out what it uses
    with suppress(ValueError):  # what is written in C may have no signature
        signature(make).bind(space, **given)  # a function that cannot be called so has a defect
    try:
        return make(space, **given)
    except InvalidInput:
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        if not wanted:
            raise  # a defect of the function
        problem = f"the agent {name} fails with it ({type(error).__name__}: {one_line(str(error), 300)})"
        fix = "correct it or leave it out; without it, a defect of the agent shows its traceback"
        raise InvalidInput(f"parameter {', '.join(wanted)}", problem, fix) from error


def _make_rrl(
    name: str,
    space: KnobSpace,
    wanted: dict[str, Any],
    *,
    seed: int,
    levels: LoadLevels | None,
    objective: Objective | None,
) -> Agent:
    """Make a form of RRL; ``wanted`` are values for its constants, and may be added to."""
    from tuner.agents.rrl import RRL
    from tuner.agents.rrl.forms import form

    if objective is not None and objective.goal in ("latency", "strict"):
        wanted.setdefault("unit", objective.slo.latency)  # s that a cost of 1 stands for
    constants = form(name, wanted, levels=levels)
    return RRL(space, constants, objective=objective, seed=seed, synchronous=True)


def _make_oracle(
    oracle: Callable[..., Bookkeeper[Any]],
    space: KnobSpace,
    constants: Any,
    *,
    seed: int,
    expected: Callable[[float], np.ndarray] | None,
) -> Bookkeeper[Any]:
    """Make the oracle, which must know what every configuration costs."""
    if expected is None:
        raise InvalidInput("agent oracle", "the expected costs are not known here", "use it in simulation")
    return oracle(space, constants, seed=seed, expected=expected)


def _check_unshared(name: str) -> None:
    """Check that an agent of ours shares its name with no installed one, which would never be made."""
    entry = installed(GROUP).get(name)
    if entry is not None:
        problem = f"'{name}' is one of ours, and the entry point of {entry.value}"
        raise InvalidInput("agent", problem, "give that entry point another name, or remove its package")


def _named(name: str) -> object:
    """Return what makes the agent of that name, ours or installed; None if there is none.

    Raises:
        InvalidInput: It cannot be imported, or is a class whose policies would say another name.
    """
    if name in _CLASSES:
        module, attribute = _CLASSES[name]
        return getattr(import_module(f"tuner.agents.{module}"), attribute)
    entry = installed(GROUP).get(name)
    if entry is None:
        return None
    found = load(entry, f"agent {name}")
    own = getattr(found, "name", None)
    if _is_bookkeeper(found) and own != name:  # its policy would be loaded as another agent's, or as none's
        said = f"the name {own!r}" if own else "no name"
        problem = f"its class {entry.value} has {said}"
        raise InvalidInput(f"agent {name}", problem, f'write name = "{name}" in it')
    return found


def _is_bookkeeper(chosen: object) -> TypeIs[type[Bookkeeper[Any]]]:
    from tuner.agents.bookkeeper import Bookkeeper

    return isinstance(chosen, type) and issubclass(chosen, Bookkeeper)
