"""What the daemon promises of each change that it asks a server for; see `promises` for the rest."""

from __future__ import annotations

import sqlite3
from itertools import takewhile
from typing import NamedTuple

from tests.builders import SPACE
from tests.control.lives.life import EPOCH, NAME, Life
from tests.control.lives.world import Replica
from tuner.control.decide.evidence import probability_kept
from tuner.control.decide.limits import GuardLimits
from tuner.control.decide.memory import HORIZON, HOUR, LONGEST_OPEN, OPEN
from tuner.control.decide.validation import unusable
from tuner.control.store.order_book import orders_of
from tuner.control.store.rows import measurement_of
from tuner.knobs import ApplyCost, Configuration


class Try(NamedTuple):
    """A change that the daemon asked the server for, by itself."""

    turn: int
    rate: float
    configuration: Configuration


class Restraint:
    """Watches a life, and holds the daemon to what it promises of each change.

    Args:
        life: The life.

    Attributes:
        broken: A sentence for each promise that was broken.
        turns: Turns of all daemons so far.
    """

    def __init__(self, life: Life) -> None:
        self.life, self.world = life, life.world
        self.broken: list[str] = []
        self.turns = 0
        self.limits = GuardLimits(**life.care)
        self._last_before = 0  # the last decision of an earlier life
        self._asked = 0  # the last decision for which a server was asked
        self._lost: list[int] = []  # the last decision before each turn that could not be stored
        self._died_of: list[Try] = []
        self._toward = ("", "")
        life.begun, life.heard = self.begin, self.heard
        self.world.asked, self.world.died = self.asked, self.died

    def hold(self, promise: bool, sentence: str) -> None:
        """Note a promise that is not kept."""
        if not promise:
            self.broken.append(f"{self.world.time:.1f} {sentence}")
            self.world.tell(f"BROKEN: {sentence}")

    def begin(self) -> None:
        """A process of the daemon begins."""
        self._last_before = self._newest()
        if self._toward != (toward := (self.life.slo, self.life.objective)):
            self._died_of.clear()  # none of the old verdicts counts
        self._toward = toward
        # The turn of a death is one of those of its ban, also where the last process has broken it off.
        self._died_of = [one._replace(turn=min(one.turn, self.turns - 1)) for one in self._died_of]

    def _newest(self) -> int:
        """The number of the last decision."""
        row = self.life.store.row("SELECT max(id) AS id FROM decision")
        return (row and row["id"]) or 0

    # A server is asked for a change.

    def asked(self, replica: Replica, wanted: Configuration, fate: str) -> None:
        """A server is asked to run something else."""
        life, worker = self.life, self.life.worker
        assert worker is not None
        self.hold(life.mode == "apply", f"mode {life.mode}, but it was changed")
        if not worker.resumed:
            return
        row = life.store.row("SELECT * FROM decision ORDER BY id DESC")
        assert row is not None
        ordered = row["rule"] in ("operator rolls back", "operator pinned")
        previous, decided = (life.store.configuration(row[n]) for n in ("previous", "configuration"))
        # If one of several replicas refuses, the others go back to what they ran.
        others = self.world.fleet and not SPACE.same(wanted, decided)
        taken_back = SPACE.same(wanted, previous) or others
        orders = orders_of(life.store, NAME)
        allowed = taken_back or row["rule"] == "operator rolls back"
        self.hold(not orders.paused or allowed, "paused, but it was changed")
        if orders.pinned is not None and not taken_back:
            pin = SPACE.same(orders.pinned, wanted) or ordered
            self.hold(pin, f"pinned, but it was changed to {self.world.text(wanted)}")
        if taken_back or row["id"] == self._asked:
            return  # another replica, or back
        self._asked = row["id"]
        self._check_others(replica, row)
        if ordered:
            return
        self._check_limits(replica, row, wanted)
        self._check_budget(row)
        self._check_tries(row, wanted)

    def heard(self, sentence: str) -> None:
        """What the daemon has made the server run is not taken for somebody else's."""
        if sentence.startswith("this turn is lost"):
            self._lost.append(self._newest())
        ours = (
            not self.world.fleet and self.world.replicas[0].setter == "ours"
        )  # of several, some may have it
        self.hold(
            not (ours and "somebody else set" in sentence), "its own change is taken for somebody else's"
        )

    def _check_others(self, replica: Replica, row: sqlite3.Row) -> None:
        """What somebody else has set is undone by no repair."""
        all_up = all(one.setter == "others" for one in self.world.replicas)
        if replica.setter != "others" or not all_up or row["rule"].startswith("operator"):
            return
        restored = "the server came back" in row["reason"]
        target = self.life.store.row("SELECT * FROM target ORDER BY id DESC")
        assert target is not None
        as_first = SPACE.same(replica.running, self.life.store.configuration(target["original"]))
        self.hold(not restored or as_first, "what somebody else has set was replaced by what ran before")
        self.hold(row["action"] != "roll back", "what somebody else has set was rolled back")

    def _check_limits(self, replica: Replica, row: sqlite3.Row, wanted: Configuration) -> None:
        """Untried configurations are a bounded step away, and reloads within an hour are counted."""
        if row["rule"] != "change":
            return
        here, there = (SPACE.encode(SPACE.nearest(one)) for one in (replica.running, wanted))
        if "untried" in row["reason"]:
            far = self.world.space.distance(
                *(self.world.space.encode(self.world.space.nearest(one)) for one in (replica.running, wanted))
            )
            self.hold(far <= self.limits.step + 1e-6, f"an untried configuration is {far:.2f} steps away")
        if here == there or SPACE.apply_cost(replica.running, wanted) < ApplyCost.RELOAD:
            return
        window = self.life.store.row("SELECT * FROM window WHERE id = ?", row["window"])
        most = self.limits.reloads_per_hour
        now = self.world.time
        ended = self.life.store.rows(
            "SELECT configuration, previous FROM decision WHERE outcome = 'applied' "
            "AND coalesce(ended, time) > ?", EPOCH + now - HOUR + 10,
        )  # fmt: skip
        costs = [
            SPACE.apply_cost(*(self.life.store.configuration(one[n]) for n in ("previous", "configuration")))
            for one in ended
        ]
        count = sum(cost >= ApplyCost.RELOAD for cost in costs)
        if window is not None and window["kept"]:
            self.hold(count < most - most // 4, f"{count} reloads in this hour, and the SLO is kept")
        elif "untried" in row["reason"]:
            driver = self.life.worker and self.life.worker.driver
            assert driver is not None
            self.hold(count < most, f"{count} reloads in this hour, and it explores")

    def _check_budget(self, row: sqlite3.Row) -> None:
        """Nothing is explored while the SLO is surely kept and the error budget surely spent."""
        driver, store = self.life.worker and self.life.worker.driver, self.life.store
        assert driver is not None
        if row["rule"] != "change" or "untried" not in row["reason"]:
            return
        target = store.row("SELECT judged_from FROM target ORDER BY attached DESC")
        judged_from = (target and target["judged_from"]) or 0
        sure: dict[tuple[int, str], bool] = {}  # whether each window has surely kept the SLO
        doubted: set[str] = set()  # what another one stands for, or an earlier life saw under some load
        charged, surely_kept = [], False
        for window in store.rows("SELECT * FROM window WHERE disturbed = '' AND rate > 0 ORDER BY id"):
            m = measurement_of(window, store.configuration(window["configuration"]))
            objective = driver.loop.objective
            if unusable(m, objective):
                continue
            probability = probability_kept(m, objective.slo)
            level, text = window["level"], self.world.text(self.world.nearest(m.configuration))
            good = any(sure[one] and one[1] not in doubted for one in sure if one[0] == level)
            known = level is not None and driver.loop.space.covers(m.configuration)
            if window["number"] >= judged_from:  # those under an earlier objective had not this SLO to keep
                charged.append(known and good and probability < 0.4)
            if known:
                sure[level, text] = sure.get((level, text), True) and probability > 0.95
            else:
                doubted |= {text, self.world.text(driver.loop.space.nearest(m.configuration))}
            surely_kept = objective.kept(m) and text not in doubted and sure.get((level, text), False)
        spent = sum(charged[-HORIZON:]) >= self.limits.budget * HORIZON
        self.hold(not (spent and surely_kept), "it explores, although the error budget is spent")

    def _check_tries(self, row: sqlite3.Row, wanted: Configuration) -> None:
        """What failed is not tried again at once, and after several failures nothing is for a while."""
        one = Try(self.turns, self.world.rate, self.world.space.nearest(wanted))
        if row["rule"] == "change":
            for died in self._died_of:
                again = died[1:] == one[1:] and one.turn - died.turn < self.limits.retry_after
                self.hold(not again, f"{self.world.text(wanted)} killed the server, and is tried again")
        failed, passed = self._failures()
        if row["reason"].startswith(("the server came back", "nothing more is tried")):
            return  # what a restart has undone is put back at once, and at its end it tries once
        beyond = failed - self.limits.breaker
        if beyond >= 0:
            wait = min(OPEN * 2**beyond, LONGEST_OPEN)
            self.hold(passed >= wait - 1, f"{failed} changes failed, the last {passed} turns ago")

    def _failures(self) -> tuple[int, int]:
        """How many changes in a row have failed in this life, and how many turns ago the last of them."""
        rows = self.life.store.rows(
            "SELECT id, outcome FROM decision WHERE id > ? AND outcome IN ('applied', 'failed') "
            "AND error NOT LIKE 'canary%' ORDER BY id DESC", self._last_before,
        )  # fmt: skip
        failed = list(takewhile(lambda row: row["outcome"] == "failed", rows))
        if not failed:
            return 0, 0
        turns = self.life.store.rows("SELECT id FROM decision WHERE id > ?", failed[0]["id"])
        return len(failed), len(turns) + sum(last >= failed[0]["id"] for last in self._lost)

    def died(self, replica: Replica) -> None:
        """A server has died of its configuration."""
        self.world.quiet = -1
        running = {one.running for one in self.world.replicas}
        change = self.life.store.row("SELECT outcome FROM decision WHERE outcome != 'held' ORDER BY id DESC")
        seen = change is not None and change["outcome"] == "applied"  # else it may have had no effect
        seen &= not orders_of(self.life.store, NAME).standing  # else the operator has made it run
        if seen and replica.setter == "ours" and len(running) == 1:  # else the change was never in force
            ran = self.world.space.nearest(replica.running)
            self._died_of.append(Try(self.turns, self.world.rate, ran))
