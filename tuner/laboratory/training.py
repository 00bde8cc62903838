"""Trains an agent, with a journal beside its policy, so that an interrupted training can go on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from tuner.agents.agent import Agent
from tuner.agents.catalogue import AGENTS
from tuner.agents.policy_file import MANIFEST
from tuner.agents.training import Callbacks, Event, TrainingWindow
from tuner.errors import InvalidInput, TunerError
from tuner.knobs import KnobSpace
from tuner.laboratory.agent_run import AgentRun, RunSpec, new_agent, serving, stage_environment, train_agent
from tuner.laboratory.journal import TrainingJournal
from tuner.laboratory.tensorboard import TensorBoard

__all__ = ["Trained", "train"]


class Trained(NamedTuple):
    """The result of a training."""

    agent: Agent
    """To be closed by the caller."""
    run: AgentRun
    space: KnobSpace
    repeated: int
    """Windows of the journal, from before the interruption."""


@runtime_checkable
class Transfers(Protocol):
    """An agent that distinguishes what it learned in simulation from what it measured."""

    def transfer(self) -> None:
        """Take everything learned so far as a prior, which a single real window outweighs."""
        ...


def train(
    spec: RunSpec,
    folder: Path,
    *,
    tensorboard: Path | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Trained:
    """Train an agent, or go on with a training that was interrupted, and save what it learned.

    Args:
        spec: What is trained.
        folder: For the policy and the journal; it must exist.
        tensorboard: For TensorBoard's logs; it must exist.
        progress: Called after each window.

    Raises:
        InvalidInput: The spec cannot be used, or another training lies in the folder (names what differs); or
            the agent's ``save`` fails or writes no policy.
        StorageError: A folder cannot be written, or the journal is damaged or of another version.
    """
    space = _space(spec)
    journal = TrainingJournal(folder, spec, space.to_json())
    board = None
    try:
        board = TensorBoard(tensorboard) if tensorboard is not None else None

        def record(event: Event) -> None:
            journal.append(event)
            if board is not None:
                board.add(event)

        if board is not None:
            for event in journal.past:
                board.add(event)
        callbacks = Callbacks(record=record, progress=progress)
        agent, run = train_agent(spec, past=journal.past, callbacks=callbacks)
    finally:
        journal.close()
        if board is not None:
            board.close()
    with ExitStack() as unsaved:
        unsaved.callback(agent.close)
        if isinstance(agent, Transfers):
            agent.transfer()
        if spec.agent not in AGENTS:  # beside an older policy nobody would see that it writes none
            _try_save(agent, spec.agent)
        agent.save(folder)
        unsaved.pop_all()  # the caller closes it
    repeated = sum(isinstance(event, TrainingWindow) for event in journal.past)
    return Trained(agent, run, space, repeated)


def _space(spec: RunSpec) -> KnobSpace:
    """Return the knobs of a training, after trying whether what its agent learns can be kept."""
    env = stage_environment(spec)
    try:
        if spec.agent not in AGENTS:  # ours can be
            with closing(new_agent(spec, env)) as agent:
                _try_save(agent, spec.agent)
        return serving(env).space
    finally:
        env.close()


def _try_save(agent: Agent, name: str) -> None:
    """Save an agent of that name in a folder of its own, and remove it.

    Raises:
        InvalidInput: Its ``save`` fails or writes no policy: nobody could load what it has learned.
        StorageError: The folder cannot be written.
    """
    problem = "its `save` writes no policy"
    with tempfile.TemporaryDirectory(prefix="servetune-") as folder:
        try:
            agent.save(Path(folder))
        except NotImplementedError:
            pass
        except TunerError:
            raise
        except Exception as error:  # code of others: whatever it raises, nothing is kept
            problem = f"its `save` fails ({type(error).__name__}: {error})"
        else:
            if (Path(folder) / MANIFEST).exists():
                return
    problem = f"{problem}, so that nothing that it learns would be kept"
    fix = "let it write with `tuner.agents.policy_file.write_policy`, also before it has learned anything"
    raise InvalidInput(f"agent {name}", problem, fix)
