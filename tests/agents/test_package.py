"""The table of contents, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

from tuner import agents


def test_contents_are_sorted_and_complete() -> None:
    """Everything named exists."""
    assert agents.__all__ == sorted(agents.__all__)
    assert all(hasattr(agents, name) for name in agents.__all__)


def test_default_rrl_loads_neither_table_nor_network() -> None:
    """They come with their parameters: an agent that has learned is asked and taught without them."""
    code = (
        "import sys; from tuner.agents.catalogue import make_agent; from tuner.knobs import Knob, KnobSpace; "
        "from tuner.agents import State; "
        "agent = make_agent('rrl', KnobSpace([Knob(name='a', grid=(1, 2), default=1)])); "
        "state = State(level=3, configuration=0); agent.update(state, agent.select(state), 1.0, state); "
        "parts = ('tuner.agents.rrl.table', 'tuner.agents.rrl.network', 'torch'); "
        "assert not [name for name in sys.modules if name.startswith(parts)]"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr


def test_contract_loads_neither_torch_nor_numba() -> None:
    """Observing a server must stay light; and a policy can be asked without torch."""
    code = (
        "import sys; from tuner.agents import Agent, LoadLevels, State; "
        "assert not {'torch', 'numba'} & set(sys.modules); "
        "import tuner.agents.rrl, tuner.agents.training; assert 'torch' not in sys.modules"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr
