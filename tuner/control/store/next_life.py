"""What the next life of the daemon takes up from the store: the windows and changes of those before.

What is found of the last changes, and what follows:

=========================  ===================================================================================
the last change            what follows
=========================  ===================================================================================
was begun, and its end     the process was killed in it, so the server is asked what it runs. If that is the
was not written            new, the change came about and is on probation, unless it led back, windows had
                           judged what is new, or the knobs no longer have its values. If not, what was new is
                           banned, if the server was asked for it and the knobs have its values: the server
                           may have died of it. Replicas of which some run the new get one configuration again
failed as far as anybody   it may still come about: the driver of one server looks for it in its first turns;
saw, a short while ago     one of several replicas that takes it late gets what the others run
failed to put back what    the driver tries that again
a restart had undone
came about, and no         it is on probation again
window judged it
=========================  ===================================================================================
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from tuner.adapters.replicas.canary import Canary
from tuner.control.decide.decision import Apply
from tuner.control.decide.event import Failed, InForce, Remembered
from tuner.control.decide.evidence import FailedRequests, probability_kept
from tuner.control.decide.load import Loads
from tuner.control.decide.loop import ControlLoop
from tuner.control.decide.memory import HOUR
from tuner.control.decide.validation import unusable
from tuner.control.drive.actuator import put_back
from tuner.control.drive.outcome import LATE, Unconfirmed, as_seen
from tuner.control.drive.replicas import configurations
from tuner.control.store.rows import measurement_of
from tuner.control.store.store import Store
from tuner.control.store.unfinished import Unfinished, failed_change, unfinished_change, unjudged_change
from tuner.errors import InvalidInput, ReadOnly, Refused, StorageError
from tuner.knobs import Configuration, KnobSpace

if TYPE_CHECKING:
    from tuner.control.drive.driver import Driver

__all__ = ["last_change", "last_seconds", "recount", "replay", "take_up_changes"]

REMEMBERED = 2000
"""How many windows of earlier lives the loop learns from."""


def take_up_changes(store: Store, target: int, driver: Driver) -> str | None:
    """Find out how an unfinished change ended; have a driver go on from the last changes of earlier lives.

    Adapters apply all of a change or nothing, so a server runs either the old or the new configuration. Of
    several replicas one may have been trying the new one: then all are put back, or get the new one if that
    was a repair. If any of them runs something else, somebody else changed it: nothing is put back, and the
    first window handles that.

    Returns:
        A sentence about an unfinished change, or about one that was never judged; None if there is neither.
    """
    sentences = []
    if (unfinished := unfinished_change(store, target)) is not None:
        unfinished = unfinished.completed(driver.loop.space, driver.running)
        sentence, came = _resolve(store, target, driver, unfinished)
        if came:
            return sentence
        sentences.append(sentence)
    _expect_late(store, target, driver)
    _note_lost(store, target, driver)
    if again := _judge_again(store, target, driver):  # what was applied before that change
        sentences.append(again)
    return "; ".join(sentences) or None


def _resolve(store: Store, target: int, driver: Driver, unfinished: Unfinished) -> tuple[str, bool]:
    """Find out and record how the change ended; return a sentence, and whether it came about."""
    space, text = driver.loop.space, driver.loop.space.format(unfinished.wanted)

    def same(one: Configuration, other: Configuration) -> bool:
        covered = space.covers(one) and space.covers(other)
        return space.same(one, other) if covered else one == other

    def has_new(one: Configuration) -> bool:
        # Our clients have what they were found with; a repair may have led to the nearest that can be set.
        wanted = as_seen(space, previous, unfinished.wanted, found[0])
        return same(one, wanted) or (unfinished.repair and same(one, space.nearest(wanted)))

    found, previous = configurations(driver.backend), unfinished.previous
    error = f"killed meanwhile; the server runs {' and '.join(sorted({space.format(c) for c in found}))}"
    ours = all(has_new(one) or same(one, previous) for one in found)
    apart = any(not same(one, found[0]) for one in found)
    if ours and apart and driver.applies:
        error += _bring_together(driver, unfinished)
        found = configurations(driver.backend)  # our clients may have followed, too
    came = all(map(has_new, found))
    sentence = f"killed in the middle of changing to {text}, which "
    if came:
        sentence += "came about; it is on probation now" if _expect_came(driver, unfinished) else "came about"
        error = error if apart else "killed meanwhile, but it came about"
        store.changed(unfinished.decision, "applied", found[0], error=error)
    else:
        sentence += "did not come about"
        if unfinished.suspect and unfinished.possible:
            failed = Apply(configuration=unfinished.wanted, reason=sentence)
            driver.loop.observe(Failed(failed, refused=False))
            driver.note_state()  # first: what a change has taught is not lost where the process ends between
        store.changed(unfinished.decision, "interrupted", driver.running, error=error)
    store.note(sentence, target)
    return sentence, came


def _expect_came(driver: Driver, unfinished: Unfinished) -> bool:
    """Have a driver go on after an unfinished change that came about; return whether it is on probation."""
    driver.loop.memory.failed_requests = unfinished.failed_requests
    back, judged = unfinished.back, unfinished.judged or not unfinished.possible
    change = Unconfirmed(unfinished.previous, unfinished.wanted, back, judged=judged, seen=True)
    driver.reconciler.expect(change)
    return not (back or judged)


def _expect_late(store: Store, target: int, driver: Driver) -> None:
    """Have a driver look for a change that has failed as far as anybody saw: the server may still make it.

    A model that takes minutes to load comes after whoever asked for it has ended. Of several replicas one
    that takes it late may have been trying it alone: it gets what the others run.
    """
    if isinstance(driver.backend, Canary):
        return
    failed, space = failed_change(store, target, within=LATE), driver.loop.space
    if failed is None:
        return
    change = failed.completed(space, driver.running)
    if not (change.possible and space.same(change.previous, driver.running)):
        return
    if space.same(change.previous, change.wanted):  # it was to bring replicas together
        return

    def write_came() -> None:
        error = "it came about after all, in a later life"
        with suppress(StorageError):  # the store owes it
            store.changed(change.decision, "applied", change.wanted, error=error)

    within = LATE - max(store.now() - change.ended, 0.0)
    late = Unconfirmed(
        change.previous, change.wanted, change.back, judged=change.judged, write_came=write_came
    )
    driver.reconciler.expect(late, within)


def _note_lost(store: Store, target: int, driver: Driver) -> None:
    """Have a driver restore what a restarted server has lost, if the last change was to do that and did not.

    It does so where its own restoration has failed, too: until windows show that what runs is better.
    """
    change = failed_change(store, target, within=math.inf)
    if change is None or change.back or not change.repair:
        return
    change, space = change.completed(driver.loop.space, driver.running), driver.loop.space
    lost = driver.reconciler.was_restarted(change.previous) and space.same(change.previous, driver.running)
    if lost and change.possible and not space.same(change.previous, change.wanted):
        driver.reconciler.lost = change.wanted


def _bring_together(driver: Driver, change: Unfinished) -> str:
    """Let all replicas run what they ran before a trial, or what a repair was to give them.

    Returns:
        What came of it, to be added to a sentence.
    """
    backend, space = driver.backend, driver.loop.space
    try:
        report = put_back(backend, space, change.wanted if change.repair else change.previous)
    except (Refused, ReadOnly, InvalidInput) as error:  # the first turn brings them together
        return f"; {'the others could not follow' if change.repair else 'it could not be put back'}: {error}"
    if change.repair:
        return "; the others followed"
    driver.running = report.configuration  # it may be the nearest of what they ran
    return "; all were put back"


def _judge_again(store: Store, target: int, driver: Driver) -> str | None:
    """Put the last change on probation again if it is in force and was never judged; return a sentence."""
    unjudged, space = unjudged_change(store, target), driver.loop.space
    if unjudged is None:
        return None
    change = unjudged.completed(space, driver.running)
    # What ran before may be on no grid: what a server made of a value, or what a user had set.
    if set(change.previous) != set(space.names) or not change.possible:
        return None
    if space.same(change.previous, change.wanted):  # replicas were brought together: there was nothing new
        return None
    runs, ran = (space.same(one, change.wanted) for one in (driver.backend.current(), driver.running))
    if not (runs or ran):
        return None
    driver.loop.memory.failed_requests = change.failed_requests
    driver.loop.observe(InForce(change.previous))
    if not runs:  # the first turn finds out whether a restart has undone it, or somebody else
        return None
    left = "taken back" if change.seen else "judged"
    sentence = (
        f"ended before the change to {space.format(change.wanted)} was {left}; it is on probation again"
    )
    store.note(sentence, target)
    return sentence


def replay(store: Store, target: int, loop: ControlLoop, *, learned: int) -> int:
    """Let a loop observe the windows of earlier lives.

    Its objective judges them: they may have been measured under another one, whose costs say nothing now.
    Those teach what configurations do, and neither bring the end of the search nearer nor use up the budget.

    Args:
        store: The store.
        target: The target's number in it.
        loop: A loop that has decided nothing yet.
        learned: Number of the last window that the agent has learned from already.

    Returns:
        How many windows it observed. Left out are those with other knobs or values, unless the server has
        made these of values that the knobs have, and those without something that its objective needs.
    """
    rows = store.rows(
        "SELECT *, number >= coalesce((SELECT judged_from FROM target WHERE id = ?), 0) AS counts FROM "
        "(SELECT * FROM window WHERE target = ? AND disturbed = '' AND rate > 0 ORDER BY id DESC LIMIT ?) "
        "ORDER BY id",
        target,
        target,
        REMEMBERED,
    )
    seen, loads = 0, Loads(loop.levels)
    for row in rows:
        configuration = store.configuration(row["configuration"])
        with store.parsing_rows():
            m = measurement_of(row, configuration)
        space = loop.space
        ours = space.covers(configuration) or _rounded(store, target, row["id"], configuration, space)
        if not ours or unusable(m, loop.objective):
            continue
        seen += 1
        level = row["level"]  # none if the mode was `observe`
        if level is None:
            foreign = row["foreign_share"]
            foreign = math.nan if foreign is None else foreign
            level = loop.levels.level(row["rate"], loop.level, foreign=foreign)
        cost, probability = loop.objective.cost(m), probability_kept(m, loop.objective.slo)
        loop.memory.failed_requests = FailedRequests(m.failures, m.asked)
        loads.observe(m, level)
        learn, rate = row["number"] > learned, loads.present.rate
        window = Remembered(level, configuration, cost, probability, learn=learn, rate=rate, seen=m.figures())
        loop.observe(window._replace(counts=bool(row["counts"])))
    return seen


def _rounded(store: Store, target: int, window: int, shown: Configuration, space: KnobSpace) -> bool:
    """Whether what a window showed is nearest to a configuration of a space that the server was asked for.

    The last change before the window says which: the server has rounded it, or somebody has set a neighbour.
    """
    row = store.row(
        "SELECT configuration FROM decision WHERE target = ? AND outcome = 'applied' "
        "AND id < (SELECT id FROM decision WHERE window = ?) ORDER BY id DESC",
        target,
        window,
    )
    if row is None or set(shown) != set(space.names):
        return False
    asked = store.configuration(row["configuration"])
    return space.covers(asked) and space.same(asked, shown)


def recount(store: Store, target: int, loop: ControlLoop, now: float, today: float) -> None:
    """Let a loop count the changes that earlier lives made within the last hour.

    Args:
        store: The store.
        target: The target's number in it.
        loop: A loop that has changed nothing yet.
        now: The time on the loop's clock, s.
        today: The same moment, s since 1970.
    """
    for row in store.rows(
        "SELECT time, configuration, previous FROM decision WHERE target = ? AND outcome = 'applied' "
        "AND time > ? AND time <= ? ORDER BY time",
        target,
        today - HOUR,
        today,
    ):
        was, wanted = store.configuration(row["previous"]), store.configuration(row["configuration"])
        cost = loop.space.apply_cost(was, wanted)
        loop.memory.count_change(now - (today - row["time"]), cost)


def last_seconds(store: Store, target: int) -> float:
    """Return how long the last change took that came about, or was waited for, s; 0 if there was none."""
    row = store.row(
        "SELECT coalesce(seconds, ended - time) AS seconds FROM decision WHERE target = ? "
        "AND outcome = 'applied' ORDER BY id DESC",
        target,
    )
    return (row["seconds"] or 0.0) if row is not None else 0.0


def last_change(store: Store, target: int, today: float) -> float:
    """Return how long ago the end of the last change was seen, s; infinite if there was none.

    Changes that failed or were broken off count: a replica may have tried what was taken back.

    Args:
        store: The store, in which no change is left that has not ended.
        target: The target's number in it.
        today: The present, s since 1970.
    """
    row = store.row(
        "SELECT coalesce(ended, time + coalesce(seconds, 0)) AS ended FROM decision WHERE target = ? "
        "AND outcome IN ('applied', 'failed', 'interrupted') ORDER BY id DESC",
        target,
    )
    return max(today - row["ended"], 0.0) if row is not None else math.inf
