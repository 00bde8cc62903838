"""Contracts that adapters, agents and environments are held to; they ship for third parties, too.

That of scheduling policies, which compiles the simulator, is imported by its module:
``tuner.testing.policy.PolicyContract``.
"""

import pytest

# Before they are imported: unless told, pytest shows the values of a failed `assert` in test modules only.
pytest.register_assert_rewrite(
    *(f"tuner.testing.{name}" for name in ("agent", "backend", "environment", "policy"))
)

from tuner.testing.agent import AgentContract  # noqa: E402 - after the line above
from tuner.testing.backend import BackendContract  # noqa: E402 - after the line above
from tuner.testing.environment import EnvironmentContract  # noqa: E402 - after the line above

__all__ = ["AgentContract", "BackendContract", "EnvironmentContract"]
