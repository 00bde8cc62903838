"""The dispatcher's settings as knobs: what a tuner may change while it runs, at no cost.

Every knob is a number. ``policy`` is the place of the policy in :data:`POLICIES`. ``deferral``,
``batch_cap``, ``target_batch``, ``drop_rule`` and ``dispatch_order`` are those of
:mod:`tuner.scheduling.knobs` and count where the policy is symphony. ``SESSION.max_batch`` and
``SESSION.queue`` limit one session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.dispatch.pool.pool import Pool
from tuner.dispatch.pool.rules import PoolSession, Rules
from tuner.errors import InvalidInput
from tuner.scheduling.batching.symphony import SymphonyOptions
from tuner.scheduling.catalogue import BATCHING_POLICIES
from tuner.scheduling.knobs import KNOBS, configuration_of, options_from
from tuner.scheduling.scheduler import compile_policy

__all__ = ["POLICIES", "current", "set_knobs"]

POLICIES = tuple(name for name in BATCHING_POLICIES if name != "nexus")
"""What the knob ``policy`` can choose."""
TUNED = "symphony"
"""The policy whose options are knobs."""
LARGEST = {"max_batch": 1024, "queue": 1_000_000}
"""The largest value of a session's limit."""


def current(pools: Sequence[Pool]) -> dict[str, float]:
    """Return the values of all knobs, to be shown.

    A batch limit that nobody set shows what the server allows, or the most that can be set if that is less
    or no server has said it yet. Written back, it would become a setting.
    """
    rules = pools[0].rules
    found = dict(configuration_of(rules.options.get(TUNED, SymphonyOptions())))
    if rules.policy in POLICIES:
        found = {"policy": float(POLICIES.index(rules.policy)), **found}
    for pool in pools:
        for session in pool.sessions:
            most = LARGEST["max_batch"]
            largest = 1 if session.max_batch == 0 else session.max_batch or pool.largest(session.name) or most
            found[f"{session.name}.max_batch"] = float(min(largest, most))
            found[f"{session.name}.queue"] = float(session.queue)
    return found


async def set_knobs(pools: Sequence[Pool], values: Mapping[str, float]) -> None:
    """Change some knobs, or none if one of the values cannot be used.

    A policy that this machine never ran is compiled first, which takes seconds; requests are answered by the
    present one meanwhile. One call ends before the next begins: who calls sees to that.

    Raises:
        InvalidInput: A knob is unknown, or its value cannot be used.
    """
    present = current(pools)
    for name, value in values.items():
        if name not in present:
            raise InvalidInput(f"knob {name}", "unknown", f"the knobs are {', '.join(present)}")
        if not _usable(name, value):
            raise InvalidInput(f"knob {name}", f"{value:g} cannot be used", f"give {_usual(name)}")
    rules = _rules(pools[0].rules, {**present, **values})
    sessions = [[_limited(session, values) for session in pool.sessions] for pool in pools]
    await asyncio.to_thread(compile_policy, rules.policy, rules.chosen)
    for pool, limited in zip(pools, sessions, strict=True):
        pool.reconfigure(rules, limited)


def _usable(name: str, value: float) -> bool:
    if name == "policy":
        return value in range(len(POLICIES))
    _, dot, limit = name.rpartition(".")
    if dot:
        return value == int(value) and 1 <= value <= LARGEST[limit]
    return name == "deferral" or value == int(value)


def _usual(name: str) -> str:
    """Say what a knob takes."""
    if name == "policy":
        places = ", ".join(f"{place} {policy}" for place, policy in enumerate(POLICIES))
        return f"the number of a policy: {places}"
    limit = name.rpartition(".")[2]
    return f"a whole number from 1 to {LARGEST[limit]}" if limit in LARGEST else "a whole number"


def _rules(rules: Rules, wanted: Mapping[str, float]) -> Rules:
    """Return the rules with the values of the knobs."""
    base = rules.options.get(TUNED, SymphonyOptions())
    options = options_from({knob.name: wanted[knob.name] for knob in KNOBS}, base)
    name = POLICIES[int(wanted["policy"])] if "policy" in wanted else rules.policy
    return replace(rules, policy=name, options={**rules.options, TUNED: options})


def _limited(session: PoolSession, values: Mapping[str, float]) -> PoolSession:
    """Return a session with those of its limits that are set."""
    largest, queue = values.get(f"{session.name}.max_batch"), values.get(f"{session.name}.queue")
    if largest is not None and session.max_batch != 0:  # that its model does not batch is no matter of tuning
        session = replace(session, max_batch=int(largest))
    return session if queue is None else replace(session, queue=int(queue))
