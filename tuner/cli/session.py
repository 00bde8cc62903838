"""A tuning session on the terminal: driver, live lines, report. Used by ``run`` and ``demo``."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tuner.cli.console import configuration_text, make_console, window_text
from tuner.control import ControlLoop, Driver, GuardLimits, WindowRecord
from tuner.control.drive.requirement import check_target
from tuner.errors import AdapterError, TunerError
from tuner.measurement import Measurement
from tuner.objective import Objective, Slo
from tuner.profiler.attachment import Attachment
from tuner.report.recorder import Recorder, write
from tuner.storage import make_folder

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.agents.rrl import RRL

__all__ = ["TuningSession", "new_run_folder"]


def new_run_folder(out: Path | None) -> Path:
    """Create the folder of a run, by default ``runs/<time>``.

    Raises:
        StorageError: It cannot be written.
    """
    folder = out or Path("runs") / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return make_folder(folder, "--out")


@dataclass(kw_only=True)
class TuningSession:
    """Ties an attachment, an agent, the control loop and a report together.

    Life: `start`, then `windows` as often as wanted, then `finish`; closing it stops the agent.
    """

    attachment: Attachment
    objective: Objective
    agent: RRL
    driver: Driver
    recorder: Recorder
    folder: Path
    console: Console
    records: list[WindowRecord] = field(default_factory=list)
    _finished: bool = False

    @classmethod
    def start(
        cls,
        attachment: Attachment,
        *,
        slo: Slo,
        goal: str,
        change_cost: float = 0.0,
        window: float,
        policy: Path | None = None,
        agent: RRL | None = None,
        out: Path | None = None,
        folder: Path | None = None,
        apply: bool = True,
        limits: GuardLimits | None = None,
        seed: int = 0,
        command: str,
        title: str = "Tuning run",
        console: Console | None = None,
    ) -> TuningSession:
        """Check everything that can be wrong before anything is changed, and open the session.

        Raises:
            InvalidInput: The SLO's statistic cannot be measured, or the policy has other knobs.
            ReadOnly: The server takes no changes and this is no dry run.
            StorageError: The run folder or the policy cannot be used.
        """
        from tuner.agents.rrl import RRL

        console = console or make_console()
        description = attachment.description
        check_target(attachment, slo, goal, apply=apply)
        folder = folder or new_run_folder(out)
        objective = Objective(slo=slo, goal=goal, cores=attachment.host.cores, change_cost=change_cost)
        if agent is None:
            agent = (
                RRL.load(policy, attachment.space) if policy is not None else RRL(attachment.space, seed=seed)
            )
        loop = ControlLoop(attachment.space, objective, agent, limits=limits)
        driver = Driver(
            attachment.backend,
            attachment.profiler,
            loop,
            clock=attachment.clock,
            window=window,
            apply=apply,
            state_file=folder / "state.json",
            notify=lambda sentence: console.print(f"[yellow]{sentence}[/yellow]"),
        )
        recorder = Recorder(
            title=title, command=command, description=description, space=attachment.space, objective=objective
        )
        return cls(
            attachment=attachment,
            objective=objective,
            agent=agent,
            driver=driver,
            recorder=recorder,
            folder=folder,
            console=console,
        )

    def windows(self, count: int, phase: str = "tune") -> list[WindowRecord]:
        """Run so many windows (0: without end), printing each."""
        return [self.step(phase) for _ in (range(count) if count else itertools.count())]

    def step(self, phase: str = "tune") -> WindowRecord:
        """Run one window and print it."""
        record = self.driver.step()
        self._note(record, phase)
        return record

    def _note(self, record: WindowRecord, phase: str) -> None:
        self.records.append(record)
        self.recorder.add(record, phase)
        self.console.print(window_text(record, self.attachment.space, self.objective, self.driver.running))

    def hold(self, count: int, phase: str) -> list[Measurement]:
        """Measure windows without deciding anything, and print and record them."""
        measured = []
        for _ in range(count):
            record = self.driver.observe()
            self._note(record, phase)
            if record.measurement is not None:
                measured.append(record.measurement)
        return measured

    def finish(self, *, restore: bool = False) -> None:
        """Leave the server in good order, then write report and state."""
        self._finished = True
        if restore:
            self._restore()
        else:
            self.driver.finish()
        self.console.print(
            f"the server runs {configuration_text(self.attachment.space, self.driver.running)}"
        )
        self.write()

    def _restore(self) -> None:
        try:
            self.attachment.restore()
            self.driver.running = self.driver.original
        except AdapterError as error:
            self.console.print(f"[red]could not restore the original configuration: {error}[/red]")

    def write(self) -> None:
        """Write the report with what is known now."""
        loop = self.driver.loop
        seen = [r.measurement for r in self.records if r.measurement is not None]
        unused = sum(bool(m.disturbed) for m in seen)
        if 2 * unused > len(seen):
            sentence = (
                f"{unused} of {len(seen)} windows were disturbed and taught nothing: use a quieter machine, "
                "or raise --foreign-limit where others share the cores for good"
            )
            self.recorder.note(sentence)
            self.console.print(f"[yellow]{sentence}[/yellow]")
        self.recorder.learned(self.agent, loop.levels, loop.memory.visits())
        failed, sent = self.attachment.request_totals(r.measurement for r in self.records)
        report = self.recorder.report(failed=failed, sent=sent, reconfigurations=self.driver.reconfigurations)
        data, page = write(report, self.folder)
        self.console.print(f"report: {page}  ({data.name}, state.json beside it)")

    def __enter__(self) -> TuningSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and not self._finished:
                self._leave_in_order()
        finally:
            self.agent.close()

    def _leave_in_order(self) -> None:
        """After an error: do for the server and the report what can still be done, and say what cannot."""
        for step in (self.driver.finish, self.write):
            try:
                step()
            except TunerError as problem:
                self.console.print(f"[red]{problem}[/red]")
