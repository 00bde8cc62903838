"""Random configurations of a dispatcher, for `tests.dispatch.random_life`."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tuner.dispatch.config import DispatchConfig

NAMES = ("m", "n", "o")
"""Of the sessions."""
POLICY_OPTIONS: list[tuple[str, list[dict[str, Any]]]] = [
    ("symphony", [{}, {"deferral": 0.0}, {"deferral": 1.0}, {"drop": "lazy"}, {"drop": "early"}]),
    ("symphony_paper", [{}]),
    ("eager", [{}]),
    ("clockwork", [{}]),
    ("timeout", [{}, {"delay": 0.005}, {"drop_expired": True}]),
    ("clipper", [{}, {"sizing": "throughput"}, {"sizing": "budget"}]),
    ("kairos", [{}, {"refuse": True}]),
    ("kairos_paper", [{}]),
    ("ribbon", [{}]),
    ("drs", [{}]),
    ("clkwrk", [{}, {"learn": True}, {"refuse": True}]),
]


def random_configuration(random: Random, fixed: Mapping[str, Any]) -> DispatchConfig:
    """Return some sessions under some policy; those that have a server in common have all in common.

    Args:
        random: Where everything comes from.
        fixed: What cannot change while a dispatcher lives.
    """
    sessions, groups = [], list[list[str]]()
    letters = random.sample("abcde", 5)
    for name in random.sample(NAMES, random.choice([1, 1, 2, 3])):
        if not letters or (groups and random.random() < 0.4):
            group = random.choice(groups)
        else:
            groups.append(
                group := [letters.pop() for _ in range(min(random.choice([1, 1, 2, 3]), len(letters)))]
            )
        session: dict[str, Any] = {
            "name": name,
            "slo_ms": random.choice([100.0, 200.0, 400.0, 1000.0]),
            "backends": [f"triton://{one}:1/{name}" for one in group],
        }
        if random.random() < 0.3:
            alpha, beta = random.choice([0.0, 1.0, 20.0]), random.choice([0.5, 5.0, 60.0, 500.0])
            session["profile"] = {"alpha_ms": alpha, "beta_ms": beta}
        if random.random() < 0.3:
            session["max_batch"] = random.choice([1, 3, 8, 32])
        if random.random() < 0.3:
            session["queue"] = random.choice([2, 10, 50])
        sessions.append(session)
    policy, options = random.choice(POLICY_OPTIONS)
    settings: dict[str, Any] = {"policy": policy, "options": random.choice(options), "sessions": sessions}
    if random.random() < 0.2:
        settings["network"] = {"control_ms": 0.5, "response_ms": 0.5}
    return DispatchConfig.model_validate({"listen": {"grpc": "127.0.0.1:0"}, **fixed, **settings})
