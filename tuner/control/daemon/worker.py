"""The worker of one target: attaches to it, resumes what an earlier process left, measures and decides.

Every error of a target (its server is away or refuses, a file is wrong) ends here: the worker logs it and
tries again after pauses that grow. So no target disturbs another.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from tuner.adapters import connect
from tuner.adapters.deployment import deployed_anew
from tuner.adapters.traffic import Traffic, TrafficSource
from tuner.control.daemon.config import Bounds, TargetConfig
from tuner.control.daemon.lost_turns import LostTurns
from tuner.control.daemon.maintenance_end import MaintenanceEnd
from tuner.control.daemon.measurer import ReportingMeasurer
from tuner.control.daemon.phase import Phase
from tuner.control.daemon.report import Say, TurnReports, WorkerReport
from tuner.control.daemon.stoppable_clock import StoppableClock, Stopped
from tuner.control.daemon.stored_agent import StoredAgent
from tuner.control.daemon.target import attached
from tuner.control.daemon.turn_log import TurnLog
from tuner.control.daemon.turned_models import TurnedModels
from tuner.control.decide.decision import Apply, Rollback
from tuner.control.decide.loop import ControlLoop
from tuner.control.drive.cost_map import CostMap, ShownLevel, cost_map
from tuner.control.drive.driver import Driver
from tuner.control.drive.journal import WindowRecord
from tuner.control.drive.oversight import Oversight
from tuner.control.drive.replicas import prevailing
from tuner.control.drive.scaling import TargetScaling
from tuner.control.drive.watched import Watched
from tuner.control.sentence import about, log_sentence
from tuner.control.store.journal import StoreJournal
from tuner.control.store.next_life import last_change, last_seconds, recount, replay, take_up_changes
from tuner.control.store.order_book import StoredOrders
from tuner.control.store.store import Standing, Store
from tuner.errors import AdapterError, InvalidInput, StorageError, TunerError
from tuner.objective import Objective
from tuner.printable import one_line
from tuner.profiler.attachment import Attachment
from tuner.profiler.load.in_flight import IN_FLIGHT

if TYPE_CHECKING:
    from tuner.agents.agent import Agent
    from tuner.control.daemon.pool_advice import PoolAdvisor

__all__ = ["Worker"]

SAVE_EVERY = 50
"""The agent is saved after every so many windows. The windows themselves are stored at once."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Pause before a target that failed is tried again, s; doubled each time, up to the length of a window."""


class Worker:
    """Keeps one target until it is stopped.

    Life: `run` in a thread of its own (or in the caller's), `stop` from another. ``record`` holds the last
    turn.

    Args:
        config: The target and its settings.
        store: Where windows, decisions and the agent are kept.
        now: Seconds since 1970.
        fast: Let a simulated target run as fast as it can, and learn reproducibly.
        windows: Number of windows after which it ends, or at the first mistake in its settings; 0 goes on.
        say: Receives what is to be logged.
        watch: Receives the name of the target and a report of each turn.
        turned: The models that the daemon's targets turn; those of this one alone if None.
    """

    def __init__(
        self,
        config: TargetConfig,
        store: Store,
        *,
        now: Callable[[], float] = time.time,
        fast: bool = False,
        windows: int = 0,
        say: Say = log_sentence,
        watch: Callable[[str, WorkerReport], None] | None = None,
        turned: TurnedModels | None = None,
    ) -> None:
        self.config = config
        self.record: WindowRecord | None = None
        self.turns = 0
        self.mistake: InvalidInput | None = None
        """The mistake in what the file asks of the target; None if there is none, or none is known."""
        self.learned: CostMap | None = None
        """The costs learned under the present load; None unless there is a ``watch``."""
        self.traffic: Traffic | None = None
        """What a dispatcher did in the last window, by session; None for any other server."""
        self.advisor: PoolAdvisor | None = None
        """Advises on the pool behind a dispatcher; None unless the file has a plan for it."""
        self._shown = ShownLevel()
        self._reports = TurnReports()
        self._scaling: TargetScaling | None = None
        self._store = store
        self._now = now
        self._fast = fast
        self._windows = windows
        self._log = say
        self._turn_log = TurnLog(config.name, self._say)
        self._watch = watch
        self._turned = turned or TurnedModels()
        self._stop = threading.Event()
        self._deadline = math.inf  # when it has to have ended, on the monotonic clock
        self._change_seconds = 0.0  # how long the last change took
        self._clock = StoppableClock(self._stop)
        self._phase = Phase(now, self._clock)
        self._lost = LostTurns(self._say)
        self._tracebacks: set[tuple[str, str, int | None]] = set()  # of errors logged before
        self._id: int | None = None
        self._plan_problem = ""  # why there is no advice on the pool

    @property
    def phase(self) -> str:
        """What the worker is doing: starting, running, stopped, or waiting, and for what."""
        return self._phase.words

    @property
    def since(self) -> float:
        """Since when it does that, s since 1970."""
        return self._phase.since

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._stop.is_set()

    def stop(self, within: float = math.inf) -> None:
        """Ask the worker to end as soon as a change under way is finished.

        Args:
            within: How long it may take, s: a change is not undone where that would take longer.
        """
        self._deadline = time.monotonic() + within
        self._stop.set()

    def run(self, delay: float = 0.0) -> None:
        """Keep the target until stopped. Never raises.

        Args:
            delay: Pause before the start, s: the windows of many targets shall not end at the same moment.
        """
        with about(self.config.name):
            try:
                self._stop.wait(delay)
                self._keep()
            finally:
                self._turned.release(self.config)

    def _keep(self) -> None:
        """Attach again and again until done, after a failure with pauses that grow while nothing works."""
        pause, said = FIRST_PAUSE, ""
        longest = min(LONGEST_PAUSE, max(self.config.window, FIRST_PAUSE))
        while not self._done:
            turns = self.turns
            failed = self._attempt()
            if failed is None or self._done:
                continue  # with the knobs of the model as it is deployed now, or to the end
            problem, level = failed
            self._phase.enter(f"waiting: {problem}")
            if self.mistake is not None and self._windows:  # its windows may never come
                self._say(problem, level=level)
                break
            worked = self.turns > turns
            if worked or problem != said:  # a problem that lasts is logged once
                self._say(f"{problem}; trying again until it works", level=level)
            said, pause = problem, FIRST_PAUSE if worked else min(2 * pause, longest)
            self._stop.wait(pause)
        self._phase.enter("stopped")

    def _attempt(self) -> tuple[str, int] | None:
        """Attach, and keep the target as long as nothing fails.

        Returns:
            What did, and the level at which it is logged; None if nothing has.
        """
        self.mistake = None
        try:
            self._attach_and_keep()
        except Stopped:
            return None
        except TunerError as error:
            self.mistake = error if isinstance(error, InvalidInput) else None
            lasts = isinstance(error, InvalidInput | StorageError)  # until somebody does something about it
            return str(error), logging.ERROR if lasts else logging.INFO
        except Exception as error:
            self._log_traceback(error)
            return f"{type(error).__name__}: {one_line(str(error))}", logging.INFO
        return None

    def _log_traceback(self, error: Exception) -> None:
        """Log the traceback of an unexpected error, once for each place in the code."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = (type(error).__name__, last.filename, last.lineno)
        if place not in self._tracebacks:
            self._tracebacks.add(place)
            log_sentence(self.config.name, "unexpected", logging.ERROR, error=error)

    @property
    def _done(self) -> bool:
        return self._stop.is_set() or 0 < self._windows <= self.turns

    def _attach_and_keep(self) -> None:
        """Attach, resume what was left, and keep the target until stopped."""
        c = self.config
        with attached(c, self._grids(), clock=self._clock) as (attachment, setting):
            self._turned.take(c, attachment)
            objective = setting.objective_on(attachment.host.cores)
            running = prevailing(attachment.backend)
            standing = self._store.target(
                c.name, c.url, attachment.space, running, objective=objective.key, mode=c.mode
            )
            self._id = standing.id
            attachment.take_up(standing.state.current)
            self._scaling = TargetScaling(c.slo, attachment.space, attachment.cores)
            if c.plan is not None and self.advisor is None:
                from tuner.control.daemon.pool_advice import PoolAdvisor

                self.advisor = PoolAdvisor(c.plan, c.seed)
            stored = StoredAgent(
                c, self._store, standing.id, objective, synchronous=self._fast, say=self._say
            )
            agent, learned = stored.load(attachment.space, attachment.cores)
            with closing(agent):
                driver = self._driver(attachment, agent, standing, objective)
                self._resume(driver, standing.id, learned)
                if not attachment.simulated:  # virtual hours are not those of the store
                    self._count_changes(driver, attachment, standing)
                self._run_turns(driver, attachment, standing, stored)

    def _grids(self) -> dict[str, tuple[float, ...]]:
        c = self.config
        before = self._store.grids(c.name, c.url)
        bounded = any(isinstance(wanted, Bounds) for wanted in c.knobs.values())
        if not before and not bounded and c.policy is None:
            return {name: wanted for name, wanted in c.knobs.items() if isinstance(wanted, tuple)}
        with closing(connect(c.url)) as backend:  # bounds select values of the server's own grids
            wider = c.grids(backend.space, before)
            # The server's own grids contain what runs, perhaps ours: what ran at first stays in reach.
            try:
                connect(c.url, {name: grid for name, grid in wider.items() if name != IN_FLIGHT}).close()
            except InvalidInput:  # the model was deployed anew, and cannot run that any more
                return c.grids(backend.space)
        return wider

    def _driver(
        self, attachment: Attachment, agent: Agent, standing: Standing, objective: Objective
    ) -> Driver:
        c = self.config
        loop = ControlLoop(
            attachment.space,
            objective,
            agent,
            limits=c.guard.limits(),
            explore=lambda: c.mode == "apply" and c.may_change(self._now()),
        )
        return Driver(
            Watched(
                attachment.backend,
                ReportingMeasurer(attachment.profiler, self._phase.window_begun, self._phase.window_ended),
                attachment.clock,
            ),
            loop,
            window=c.window,
            oversight=Oversight(
                apply=c.mode == "apply",
                permit=self._permit,
                orders=StoredOrders(self._store, c.name),
                canary=c.canary,
            ),
            journal=StoreJournal(self._store, standing.id, objective),
            resume=standing.state,
            notify=self._say,
        )

    def _resume(self, driver: Driver, target: int, learned: int) -> None:
        """Resume from what an earlier process left in the store."""
        seen = replay(self._store, target, driver.loop, learned=learned)
        self._change_seconds = last_seconds(self._store, target)
        if sentence := take_up_changes(self._store, target, driver):
            self._say(sentence, note=False)
        space = driver.loop.space
        going_on = f", going on after {seen} windows" if seen else ""
        self._say(f"{self.config.mode}, it runs {space.format(driver.backend.current())}{going_on}")

    def _count_changes(self, driver: Driver, attachment: Attachment, standing: Standing) -> None:
        """Count the changes of the last hour, and tell the profiler, which is new, when the last one was."""
        today = self._now()
        recount(self._store, standing.id, driver.loop, attachment.clock.now(), today)
        attachment.profiler.changed(last_change(self._store, standing.id, today))
        if not attachment.space.same(standing.state.current, attachment.original):
            attachment.profiler.changed()  # by somebody else or by a restart, nobody knows when

    def _run_turns(
        self, driver: Driver, attachment: Attachment, standing: Standing, stored: StoredAgent
    ) -> None:
        """Take turns until stopped, or until the model is another one; then end as :meth:`_end` says."""
        self._phase.enter("running")
        maintenance = MaintenanceEnd(
            self.config,
            self._store,
            standing,
            now=self._now,
            looks_back=attachment.backend.describe().quantile_memory,
            say=self._say,
        )
        try:
            while not self._done:
                begun = attachment.clock.now()
                try:
                    record = self._turn(driver, maintenance)
                except StorageError as error:  # the driver does nothing that it could not write down
                    self._lost.add(str(error))
                    self._phase.turn_lost(str(error))
                    self._clock.sleep(FIRST_PAUSE)
                    continue
                self._lost.end()
                self._phase.turn_stored()
                self.record = record
                self.turns += 1
                self._time_change(record, begun, attachment.clock.now())
                self._turn_log.add(record, driver.loop.space)
                self._report_turn(record, driver)
                self._observe_traffic(attachment)
                if self.turns % SAVE_EVERY == 0:
                    stored.save(driver.loop.agent, record.number)
                why = deployed_anew(attachment.backend)
                if why and driver.loop.memory.probation is None:  # a change is judged first
                    self._say(f"{why}; its knobs are read anew")
                    self._phase.enter("starting")
                    return
                if attachment.simulated and not self._fast:
                    self._clock.sleep(attachment.clock.now() - begun)
        finally:
            self._end(driver, stored)

    def _turn(self, driver: Driver, maintenance: MaintenanceEnd) -> WindowRecord:
        ends = maintenance.before_turn(driver)  # also where it only observes: then no window has yet to end
        if self.config.mode == "observe":
            return driver.observe()
        return driver.step(last=ends or self.turns + 1 == self._windows)

    def _time_change(self, record: WindowRecord, begun: float, ended: float) -> None:
        """Note how long the last change took, or was waited for, in a turn between two times, s."""
        m = record.measurement
        if record.report is not None:
            self._change_seconds = record.report.seconds
        elif record.outcome in {"failed", "interrupted"}:  # what came about before may have yet to be undone
            self._change_seconds = max(self._change_seconds, ended - (begun if m is None else m.end))

    def _observe_traffic(self, attachment: Attachment) -> None:
        """Read what a dispatcher did with the requests of each session, and advise on its pool."""
        if not isinstance(attachment.backend, TrafficSource):
            return
        try:
            self.traffic = attachment.backend.traffic()
        except AdapterError:
            self.traffic = None
        if self.traffic is None or self.advisor is None:
            return
        try:
            advice = self.advisor.observe(self.traffic)
        except InvalidInput as error:  # no pool can serve the sizes that come
            if str(error) != self._plan_problem:
                self._say(f"there is no advice on the pool: {error}")
            self._plan_problem = str(error)
            return
        if advice:
            self._say(advice)

    def _end(self, driver: Driver, stored: StoredAgent) -> None:
        """Undo a change on probation, which nobody would judge soon, if there is time; save the agent."""
        try:
            unjudged = driver.loop.memory.probation is not None
            if self.config.mode == "apply" and unjudged and driver.applies:
                # To undo a change takes about as long; in the middle of it the process might end.
                if time.monotonic() + self._change_seconds <= self._deadline:
                    self._say(f"leaving it with {driver.loop.space.format(driver.finish())}")
                else:
                    self._say("there is no time to undo the last change; the next life judges it")
            if self.record is not None:
                stored.save(driver.loop.agent, self.record.number)
        except TunerError as error:
            self._say(f"could not be finished: {error}")

    def _permit(self, decision: Apply | Rollback) -> bool:
        """Whether a decision may be carried out now: repairs at any time, the rest in maintenance windows."""
        repairs = isinstance(decision, Rollback) or decision.restores
        return repairs or self.config.may_change(self._now())

    def _report_turn(self, record: WindowRecord, driver: Driver) -> None:
        """Give ``watch`` the report of a turn, and keep the costs that it is to show."""
        advised = {} if self._scaling is None else self._scaling.advise(driver.backend, record.measurement)
        report = self._reports.of(record, driver, advised, target=self._id)
        if self._watch is not None:
            level = self._shown.follow(driver.loop.level)
            self.learned = cost_map(driver.loop, level) if self.config.mode != "observe" else None
            self._watch(self.config.name, report)

    def _say(self, sentence: str, *, note: bool = True, level: int = logging.INFO) -> None:
        """Log a sentence; ``note`` also stores it as an event. Decisions are no events: they have a table."""
        self._log(self.config.name, sentence, level)
        if note:
            try:
                self._store.note(sentence if self._id else f"{self.config.name}: {sentence}", self._id)
            except StorageError as error:
                log_sentence(self.config.name, str(error), logging.WARNING)
