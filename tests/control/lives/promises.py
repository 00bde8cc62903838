"""What the daemon promises, whatever happens; each broken promise is noted with the story that led to it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from tests.builders import SPACE
from tests.control.lives.life import EPOCH, NAME, Life
from tests.control.lives.restraint import Restraint
from tests.control.lives.world import SLO
from tuner.control.daemon.report import WorkerReport
from tuner.control.store.order_book import orders_of
from tuner.knobs import Configuration

HEALTHY = 4
"""Turns without trouble after which a pin is in force."""


class Promises(Restraint):
    """Watches a life, and holds the daemon to what it promises.

    Args:
        life: The life.
    """

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._good: set[tuple[str, float]] = set()  # what has kept the SLO in this life, under which rate
        self._bad: set[tuple[str, float]] = set()  # what has ever broken it
        self._pinned: Configuration | None = None  # what the operator has pinned last in this life
        self._reunited = False  # whether the last change only gave all replicas what most of them ran
        life.watch, life.ended = self.turn, self.end

    def begin(self) -> None:
        super().begin()
        self._good.clear()
        self._pinned = None

    # A turn has ended.

    def _check_probation(self, report: WorkerReport) -> None:
        """A change ends with the first window that surely shows that it broke the SLO."""
        m, record, world = report.record.measurement, report.record, self.world
        if m is None or report.unused:
            return
        text, surely = world.text(SPACE.nearest(m.configuration)), m.latency_p95 > 2 * SLO or m.failures > 9
        broken = surely and not report.kept and report.first_after_change
        good = {one for one, rate in self._good - self._bad if rate == world.rate} - {text}
        held = "operator" in record.decision.rule or record.decision.rule == "circuit breaker"
        held |= self._reunited or (self._pinned is not None and SPACE.same(m.configuration, self._pinned))
        if broken and good and not held and self.life.mode == "apply" and not m.restarted:
            back = record.decision.rule in ("broken on probation", "failures on probation")
            self.hold(back, f"{text} broke the SLO, and stays, although {' '.join(good)} kept it")
        if not report.kept:
            self._bad.add((text, world.rate))
        elif m.latency_p95 < 0.8 * SLO and (text, world.rate) not in self._bad:
            self._good.add((text, world.rate))

    def turn(self, report: WorkerReport) -> None:
        """A turn has ended."""
        self.turns += 1
        self.world.quiet += 1
        if any(not one.up or one.late for one in self.world.replicas):
            self.world.quiet = -1
        orders = orders_of(self.life.store, NAME)
        self._pinned = orders.pinned or self._pinned
        if orders.standing:
            self._died_of.clear()  # the operator may have restarted it
        self._check_probation(report)
        if report.record.outcome == "applied":
            self._reunited = "replicas differ" in report.record.decision.reason
        self._check_running(report)
        self._check_pin(report)

    def _check_running(self, report: WorkerReport) -> None:
        """What the daemon and its store believe to run is what runs."""
        world, store = self.world, self.life.store
        if report.record.outcome == "applied" and all(
            one.setter == "ours" and one.up for one in world.replicas
        ):
            believed = store.row("SELECT running FROM target ORDER BY attached DESC")
            assert believed is not None
            text = store.configuration(believed["running"])
            for runs in (report.running, text):  # a replica that did not answer may follow later
                right = any(world.space.same(one.running, runs) for one in world.replicas)
                self.hold(right, f"it believes that {world.text(runs)} runs")
        settled = world.quiet >= HEALTHY and self.life.mode == "apply"
        if settled and not orders_of(store, NAME).paused and not self._out_of_order():
            believed = store.row("SELECT running FROM target ORDER BY attached DESC")
            assert believed is not None
            text = store.configuration(believed["running"])
            for one in world.replicas:
                right = world.space.same(one.running, text)
                self.hold(right, f"the store says {world.text(text)}, it runs {world.text(one.running)}")
        unended = store.rows("SELECT id FROM decision WHERE outcome IN ('decided', 'applying') ORDER BY id")
        known = (
            self.life.worker and self.life.worker.driver and self.life.worker.driver.reconciler.unconfirmed
        )
        self.hold(len(unended) <= (known is not None), f"{len(unended)} changes have no end")

    def _check_pin(self, report: WorkerReport) -> None:
        """What is pinned runs, once the server has been well for some turns."""
        world, driver = self.world, self.life.worker and self.life.worker.driver
        orders = orders_of(self.life.store, NAME)
        assert driver is not None
        if orders.pinned is None or orders.paused or self.life.mode != "apply":
            return
        if world.quiet < HEALTHY or self._out_of_order():
            return
        pinned = SPACE.nearest(orders.pinned)
        if pinned in world.refused or pinned in world.deadly:
            return
        for one in world.replicas:
            exact = not (world.fleet or world.rounds)
            alike = world.space.equal if exact else world.space.same
            runs = alike(one.running, orders.pinned)
            self.hold(runs, f"pinned to {world.text(orders.pinned)}, but it runs {world.text(one.running)}")

    def _out_of_order(self) -> bool:
        """Whether a server does not take changes at present, or the daemon waits after some that failed."""
        world, driver = self.world, self.life.worker and self.life.worker.driver
        assert driver is not None
        away = any(not one.up or one.late for one in world.replicas)
        return away or world.time < world.refusing_until or driver.loop.memory.failed_changes > 0

    # The daemon has ended.

    def end(self) -> None:
        """A daemon has ended because it was asked to."""
        world, worker = self.world, self.life.worker
        if world.time < world.full_until:
            return
        if not world.alive or worker is None or worker.driver is None or self.life.mode != "apply":
            return
        orders = orders_of(self.life.store, NAME)
        row = self.life.store.row("SELECT * FROM decision WHERE outcome = 'applied' ORDER BY id DESC")
        if (
            row is None
            or orders.standing
            or self._out_of_order()
            or any(one.setter != "ours" for one in world.replicas)
        ):
            return
        unjudged = row["observed"] is None and row["rule"] == "change"
        running, best = world.replicas[0].running, worker.driver.loop.incumbent()
        wanted = self.life.store.configuration(row["configuration"])
        ordered = self._pinned is not None and SPACE.same(running, self._pinned)
        if unjudged and best is not None and SPACE.same(running, wanted) and not ordered:
            self.hold(SPACE.same(running, best), "it leaves behind a change that nobody has judged")

    # Trouble has ended.

    def calm(self, windows: int) -> None:
        """Hold it to what it promises a server in order under a steady load."""
        world, store = self.world, self.life.store
        first = world.time + EPOCH
        self.life.daemon(windows)
        rows = store.rows("SELECT * FROM window WHERE time > ? ORDER BY id", first)[-windows:]
        known = {
            world.text(c) for row in rows
            if world.keeps_slo(c := store.configuration(row["configuration"])) and not row["disturbed"]
        }  # fmt: skip
        last = [store.configuration(row["configuration"]) for row in rows[-10:]]
        bad = [one for one in last if not world.nearly_keeps_slo(one)]
        words = f"it keeps {' '.join(map(world.text, bad))}, although {' '.join(known)} keeps the SLO"
        self.hold(not known or len(bad) <= len(last) / 2, words)
        late = store.rows(
            "SELECT * FROM decision WHERE time > ? AND outcome IN ('applied', 'failed')",
            world.time + EPOCH - 150,
        )
        spent = store.rows(
            "SELECT * FROM decision WHERE time > ? AND reason LIKE '%error budget used%'", first
        )  # while it is, the search waits, and goes on later
        searched = windows - len(spent) > 60
        self.hold(len(late) <= 8 or not searched, f"{len(late)} changes in the last 30 windows")
        tried = Counter(
            row["configuration"]
            for row in store.rows(
                "SELECT configuration FROM decision WHERE time > ? AND outcome IN ('applied', 'failed') "
                "AND action = 'apply' AND rule = 'change'",
                first,
            )
        )
        most = 2 + math.log2(windows / self.limits.retry_after + 1)
        for text, times in tried.items():
            one = SPACE.nearest(store.configuration(text))
            harms = one in world.deadly or world.failures(one) > 0
            self.hold(
                not harms or times <= most,
                f"{world.text(one)}, which kills or fails, was tried {times} times",
            )

    def lose(self) -> None:
        """All replicas are restarted, and get back what they lost."""
        world = self.world
        before = [one.running for one in world.replicas]
        worker = self.life.worker
        assert worker is not None
        assert worker.driver is not None
        good = worker.driver.loop.last_good
        row = self.life.store.row("SELECT original FROM target ORDER BY attached DESC")
        assert row is not None
        if any(not SPACE.same(before[0], one) for one in before) or not world.keeps_slo(before[0]):
            return
        if not world.space.equal(world.home, self.life.store.configuration(row["original"])):
            return  # nobody can tell a restart from a deployment
        for one in world.replicas:
            one.restart(12.0, loses=True)
        self.life.daemon(4)
        for one in world.replicas:
            as_good = good is not None and SPACE.same(one.running, good)
            back = SPACE.same(one.running, before[0]) or as_good or world.keeps_slo(one.running, 1.0)
            lost = f"{world.text(before[0])}, runs {world.text(one.running)}, last good {good}"
            self.hold(back, f"it does not get back what it lost: {lost}")


def lived(seed: int, folder: Path) -> Promises:
    """Let a target live through trouble and then through peace; return what became of the promises.

    Args:
        seed: Of the life.
        folder: For the store.
    """
    life = Life(seed, folder)
    promises = Promises(life)
    life.world.during = life.order
    for number in range(5):
        life.daemon(30, killed=number % 2 == 0, stopped=number % 2 == 1)
        life.resettle()
    life.reopen()
    life.calm_down()
    promises.calm(150)
    promises.lose()
    life.store.close()
    return promises
