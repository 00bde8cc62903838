"""A tuning run on the terminal: driver, a line for each window, report. Used by ``run`` and ``demo``."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tuner.cli.console import command_line, configuration_text, make_console, plain, window_text
from tuner.cli.run_report import RunReport
from tuner.cli.slow_change import SlowChange
from tuner.control import ControlLoop, Driver, GuardLimits, Oversight, StateFile, Watched, WindowRecord
from tuner.control.drive.reconcile.late_change import await_late_change
from tuner.control.drive.requirement import check_target
from tuner.control.drive.state import RunState
from tuner.errors import AdapterError, StorageError
from tuner.files.storage import make_folder
from tuner.interruption import uninterrupted
from tuner.measurement import Measurement
from tuner.objective import Objective
from tuner.profiler.attachment import Attachment
from tuner.profiler.indicator import make_indicator
from tuner.report.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from tuner.agents.rrl import RRL
    from tuner.knobs import Configuration, KnobSpace
    from tuner.setting import Setting

__all__ = ["TuningSession", "check_indicator", "new_run_folder"]

LONG_WINDOW = 10.0
"""s from which on a window that was lengthened is announced: whoever watches waits for it."""
UNKNOWN = (
    "it is not known what the server runs, because it does not answer: look with `tuner observe`; "
    "it was last set to %s"
)


def new_run_folder(out: Path | None) -> Path:
    """Create the folder of a run, by default ``runs/<time>``, with a number for a second one of that time.

    Raises:
        StorageError: It cannot be written.
    """
    if out is not None:
        return make_folder(out, "--out")
    runs, name, number = make_folder(Path("runs"), "--out"), f"{datetime.now():%Y-%m-%d_%H-%M-%S}", 1
    while True:
        folder = runs / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:  # that of a run that began in the same second
            number += 1
            continue
        except OSError:
            pass  # the next line says it
        return make_folder(folder, "--out")


def check_indicator(setting: Setting) -> None:
    """Query the setting's service level indicator once, so that mistakes show before anything begins.

    Raises:
        InvalidInput: The query cannot be used, or the token's file can be read by everybody.
        StorageError: The token's file cannot be read.
        AdapterError: The server does not answer.
    """
    indicator = make_indicator(setting.sli, setting.objective.slo.statistic)
    if indicator is not None:
        indicator.check(setting.seconds)


@dataclass(kw_only=True)
class TuningSession:
    """One run: an attachment, an agent, the control loop and a report.

    Life: enter it after `start`, then `windows` as often as wanted, then `finish`. However the block ends,
    the server is left in good order: with the configuration that it ran before if `restore` is set, else
    with the best that was found. Nothing that is printed or written on the way out can prevent that. Then
    the report and the policy are written. While it goes on, ``report.json`` is written now and then, with
    its windows until then.
    """

    attachment: Attachment
    driver: Driver
    state: RunStateFile
    report: RunReport
    console: Console
    restore: bool = False
    """Whether what the server ran before is restored at the end, instead of leaving the best."""
    save_policy: Path | None = None
    """The folder in which what was learned is saved at the end; None saves nothing."""
    _longer: bool = False
    """Whether the last window was far longer than asked for."""
    _settled: bool = False
    """Whether the server was left in good order."""
    _written: bool = False
    """Whether the report was written."""
    _saved: bool = False
    """Whether what was learned was saved, if it was to be."""
    _unrestored: AdapterError | None = None
    """Why what the server ran before was not restored, if it was to be."""

    @classmethod
    def start(
        cls,
        attachment: Attachment,
        setting: Setting,
        make_agent: Callable[[Objective], RRL],
        *,
        out: Path | None = None,
        apply: bool = True,
        limits: GuardLimits | None = None,
        title: str = "Tuning run",
        console: Console | None = None,
    ) -> TuningSession:
        """Check the server, the setting and the agent before anything is changed, and open the session.

        Args:
            attachment: The server.
            setting: What it is tuned toward.
            make_agent: Makes the agent for what is minimised on it; called after the checks.
            out: The folder of the run, by default ``runs/<time>``.
            apply: False only recommends.
            limits: How careful to be; those of the control loop if None.
            title: Of the report.
            console: Where windows are printed.

        Raises:
            InvalidInput: The SLO's statistic cannot be measured, or the policy has other knobs.
            ReadOnly: The server takes no changes and this is no dry run.
            StorageError: The run folder or the policy cannot be used.
        """
        console = console or make_console()
        objective = setting.objective_on(attachment.host.cores)
        check_target(attachment, objective.slo, objective.goal, apply=apply)
        folder = new_run_folder(out)
        agent = make_agent(objective)
        slow = SlowChange(lambda sentence: _print_if_read(console, f"[dim]{sentence}[/dim]"))
        state = RunStateFile(folder / "state.json", attachment.space, slow)
        driver = Driver(
            Watched(attachment.backend, attachment.profiler, attachment.clock),
            ControlLoop(attachment.space, objective, agent, limits=limits, explore=lambda: apply),
            window=setting.seconds,
            oversight=Oversight(apply=apply),
            journal=state,
            notify=lambda sentence: _print(console, f"[yellow]{plain(sentence)}[/yellow]", state.required),
        )
        recorder = Recorder(
            title=title,
            command=command_line(),
            description=attachment.description,
            space=attachment.space,
            objective=objective,
        )
        report = RunReport(recorder, folder, attachment, driver)
        return cls(attachment=attachment, driver=driver, state=state, report=report, console=console)

    def windows(self, count: int, phase: str = "tune") -> None:
        """Run a number of windows (0: without end) and print each."""
        for number in range(1, count + 1) if count else itertools.count(1):
            self.step(phase, last=number == count)

    def step(self, phase: str = "tune", *, last: bool = False) -> WindowRecord:
        """Run one window and print it; after the last one nothing is tried any more."""
        self._say_if_longer(self.driver.loop.window(self.driver.window))
        record = self.driver.step(last=last)
        self._note(record, phase)
        return record

    def _say_if_longer(self, seconds: float) -> None:
        """Say that the next window is far longer than asked for, unless the one before was, too."""
        longer = seconds >= max(2 * self.driver.window, LONG_WINDOW)
        if longer and not self._longer:
            latency = self.driver.loop.objective.slo.latency
            few = seconds > max(self.driver.window, latency)
            why = "few requests come, or few are timed" if few else "the SLO is long"
            self.say(f"[dim]{why}: the next windows take {seconds:.0f} s[/dim]")
        self._longer = longer

    def _note(self, record: WindowRecord, phase: str) -> None:
        self.report.add(record, phase)
        objective = self.driver.loop.objective
        self.say(window_text(record, self.attachment.space, objective, self.driver.running))
        self.report.save_if_due()

    def hold(self, count: int, phase: str) -> list[Measurement]:
        """Measure a number of windows without deciding anything; print and record them."""
        measured = []
        for _ in range(count):
            record = self.driver.observe()
            self._note(record, phase)
            if record.measurement is not None:
                measured.append(record.measurement)
        return measured

    def say(self, text: str) -> None:
        """Print a text; at the end of the run it matters no more whether anybody reads it."""
        _print(self.console, text, self.state.required)

    def stop(self) -> None:
        """Say that somebody has ended the run, who may have ended the reader of its output, too."""
        self.state.required = False
        self.say("stopping; leaving the server in good order")

    def finish(self) -> None:
        """Leave the server in good order, then write report, state and policy.

        Raises:
            StorageError: The report or the policy cannot be written.
            AdapterError: What the server ran before could not be restored.
        """
        self._settle()
        if (recommended := self.report.totals.recommended) is not None:
            text = configuration_text(self.attachment.space, recommended)
            self.say(f"nothing was changed; the last decision was to run {text}")
        self.write()
        self._save()
        if self._unrestored is not None:
            raise self._unrestored

    def _settle(self) -> None:
        """Leave the server in good order. Ctrl-C, SIGTERM and SIGHUP wait for it."""
        self.state.required = False
        self.state.broken_off()
        self._await_late_change()
        with uninterrupted():  # whoever changes the server says that it has to end first
            if self.restore and self.driver.applies:
                self._restore()
            else:
                self.driver.finish()
            self._settled = True
            self._say_what_runs()  # here, because what was held is raised at the block's end

    def _say_what_runs(self) -> None:
        """Say what the server runs, as it says itself, and what it may come to run."""
        space = self.attachment.space
        try:
            found = self.driver.ask_running()
        except AdapterError:
            text = configuration_text(space, self.driver.running)
            self.say(f"[yellow]{UNKNOWN % text}[/yellow]")
        else:
            apart = f"; {plain(found.apart)}" if found.apart else ""
            self.say(f"the server runs {configuration_text(space, found.configuration)}{apart}")
        if (late := self.driver.reconciler.late_change()) is not None:
            text = configuration_text(space, late.wanted)
            self.say(f"[yellow]it was late to load {text}, and may still come to run that[/yellow]")

    def _await_late_change(self) -> None:
        """Wait for a change that the server may still be at: it would come to run it after the end."""
        late, clock = self.driver.reconciler.late_change(), self.attachment.clock
        if late is not None and self.driver.applies:
            came = await_late_change(
                self.attachment.backend,
                late.wanted,
                lambda sentence: self.say(f"[yellow]{plain(sentence)}[/yellow]"),
                clock=clock,
                seconds=late.deadline - clock.now(),
            )
            if came:
                self.driver.reconciler.not_under_way()

    def _restore(self) -> None:
        self.state.restoring()
        try:
            with uninterrupted(self.say):
                self.attachment.restore()
            self.driver.restored()
        except AdapterError as error:
            self.driver.note_state()
            self._unrestored = AdapterError(f"could not restore the original configuration: {error}")
            self.say(f"[red]{plain(str(self._unrestored))}[/red]")

    def write(self) -> None:
        """Write the report of the windows until now."""
        if doubt := self.report.doubt():
            self.report.recorder.note(doubt)
            self.say(f"[yellow]{doubt}[/yellow]")
        # With `restore` what ran first runs again, whatever was found.
        data, page = self.report.write(compare=self.driver.applies and not self.restore)
        self._written = True
        self.say(f"report: {plain(str(page))}  ({data.name}, state.json beside it)")

    def _save(self) -> None:
        """Save what was learned, if it is to be saved."""
        if self.save_policy is not None:
            self.driver.loop.agent.save(self.save_policy)
            self.say(f"policy saved to {plain(str(self.save_policy))}")
        self._saved = True

    def __enter__(self) -> TuningSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._leave_in_order()
        finally:
            self.driver.loop.agent.close()

    def _leave_in_order(self) -> None:
        """After an error do what is left to do at the end, as far as possible; print what is not."""
        saved = self._saved or not self.report.totals.windows  # nothing was learned: a policy of before stays
        for done, step in (
            (self._settled, self._settle),
            (self._written, self.write),
            (saved, self._save),
        ):
            try:
                if not done:
                    step()
            except Exception as problem:  # none may keep the next step, or the first error, from us
                self.say(f"[red]{plain(str(problem))}[/red]")


class RunStateFile(StateFile):
    """Where a run stands, in a file.

    As long as it is required, nothing is changed that cannot be written down. At the end of the run the
    server is left in good order all the same.

    Args:
        path: The file.
        space: The knobs.
        slow: Says of a change under way that it takes long.
    """

    def __init__(self, path: Path, space: KnobSpace, slow: SlowChange) -> None:
        super().__init__(path)
        self.required = True
        self._space, self._slow = space, slow
        self._wanted: Configuration | None = None  # what the last decision was to run

    def decided(self, record: WindowRecord, state: RunState) -> None:
        """Write down where the run stands, and note what is to run."""
        super().decided(record, state)
        self._wanted = record.wanted

    def changing(self) -> None:
        """Note that a change begins."""
        if self._wanted is not None:
            self._slow.begin(configuration_text(self._space, self._wanted))

    def restoring(self) -> None:
        """Note that what the server ran before is being put back."""
        self._slow.begin("what it ran before")

    def broken_off(self) -> None:
        """Note that no change is under way: Ctrl-C may have ended the last one before its end was noted."""
        self._slow.end()

    def stands(self, state: RunState) -> None:
        """Replace the file; a change has ended, whatever came of it."""
        self._slow.end()
        try:
            super().stands(state)
        except StorageError:
            if self.required:
                raise


def _print(console: Console, text: str, required: bool) -> None:
    """Print a text; a reader that has gone is an error only if the text is required."""
    try:
        console.print(text)
    except OSError:
        if required:
            raise
        console.quiet = True


def _print_if_read(console: Console, text: str) -> None:
    """Print a text beside others; that its reader has gone is noticed with the next one that is required."""
    with suppress(OSError):
        console.print(text)
