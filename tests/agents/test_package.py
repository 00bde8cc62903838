"""The table of contents, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

from tuner import agents


def test_contents_are_sorted_and_complete() -> None:
    """Everything named exists."""
    assert agents.__all__ == sorted(agents.__all__)
    assert all(hasattr(agents, name) for name in agents.__all__)


def test_contract_loads_neither_torch_nor_numba() -> None:
    """Observing a server must stay light; and a policy can be asked without torch."""
    code = (
        "import sys; from tuner.agents import Agent, LoadLevels, State; "
        "assert not {'torch', 'numba'} & set(sys.modules); "
        "import tuner.agents.rrl, tuner.agents.training; assert 'torch' not in sys.modules"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr
