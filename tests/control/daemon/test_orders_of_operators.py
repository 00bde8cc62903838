"""Orders that are given to a daemon by commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration
from tests.control.daemon.daemon_bed import Bed, Running
from tests.control.daemon.file_server import FileServer
from tests.waiting import eventually
from tuner.cli.app import app
from tuner.control import ControlLoop
from tuner.control.store.next_life import recount
from tuner.errors import StorageError
from tuner.knobs import ApplyCost


def command(bed: Bed, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--state", str(bed.folder / "s.db")])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_paused_target_stays_as_it_is(bed: Bed) -> None:
    """Also over a new life of the daemon; it is tuned again when resumed."""
    bed.write(("a", "observe", ""))
    bed.run(windows=1)
    assert command(bed, "pause", "a", "--why", "a test") == "a is paused\n"
    bed.write(("a", "apply", ""))

    bed.run(windows=6)
    assert bed.running() == configuration()
    reasons = {row["reason"] for row in bed.rows("SELECT reason FROM decision")}
    assert reasons == {"only observing", "paused: a test"}

    command(bed, "resume", "a")
    bed.run(windows=6)
    assert bed.running() != configuration()


def test_a_pinned_target_runs_what_it_is_pinned_to(bed: Bed) -> None:
    """It is applied outside the maintenance windows, too: a person has asked for it."""
    bed.write(("a", "observe", ""))
    bed.run(windows=1)
    printed = command(bed, "pin", "a", "--set", "max_batch_size=16", "--set", "max_queue_delay=10ms")
    assert printed == (
        "a is pinned to instances=1 max_batch_size=16 max_queue_delay=10ms; "
        "it takes effect in mode apply, not in observe\n"
    )
    bed.write(("a", "apply", "maintenance: [{from: '02:00', to: '03:00'}]"))
    bed.now = lambda: 1_700_000_000.0  # 22:13 UTC

    bed.run(windows=4)

    assert bed.running() == configuration(16, 0.01)
    outcomes = [row["outcome"] for row in bed.rows("SELECT outcome FROM decision ORDER BY id")]
    assert outcomes == ["held", "applied", "held", "held", "held"]


@pytest.mark.parametrize("mode", ["recommend", "apply"])
def test_an_order_says_whether_its_mode_lets_it_change_anything(bed: Bed, mode: str) -> None:
    """It is the mode of the file with which the target was last attached."""
    bed.write(("a", "apply", ""))
    bed.run(windows=12)
    bed.write(("a", mode, ""))
    bed.run(windows=1)

    pinned, back = command(bed, "pin", "a"), command(bed, "rollback", "a")

    assert ("; it takes effect in mode apply, not in recommend\n" in pinned) == (mode == "recommend")
    assert (", but only in mode apply, not in recommend\n" in back) == (mode == "recommend")


def test_a_pin_moves_to_what_somebody_else_sets(bed: Bed) -> None:
    """Two operators: the tuner does not take sides, and says so."""
    bed.write(("a", "apply", ""))
    bed.run(windows=1)
    FileServer(bed.folder / "a").set(configuration(4))
    bed.run(windows=1)
    command(bed, "pin", "a")
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["a"].turns > 2)
        bed.servers["a"].set(configuration(16, 0.01, 2))
        eventually(lambda: any("it is pinned to that now" in sentence for sentence in bed.said))
        turns = keeper.workers["a"].turns
        eventually(lambda: keeper.workers["a"].turns > turns + 3)

    assert bed.running() == configuration(16, 0.01, 2)


def test_an_operator_rolls_back(bed: Bed) -> None:
    """Once: the server goes back to what ran before, and the order is done."""
    bed.write(("a", "apply", ""))
    bed.run(windows=12)
    command(bed, "pause", "a")
    printed = command(bed, "rollback", "a")
    last = bed.rows(
        "SELECT * FROM decision WHERE outcome = 'applied' AND action = 'apply' AND previous != configuration "
        "AND configuration = (SELECT running FROM target) ORDER BY id DESC"
    )[0]

    bed.run(windows=2)

    assert printed.startswith("a goes back to ")
    rolled, held = bed.rows("SELECT * FROM decision ORDER BY id DESC LIMIT 2")[::-1]
    assert (rolled["action"], rolled["outcome"]) == ("roll back", "applied")
    assert rolled["configuration"] == last["previous"]
    assert held["reason"] == "paused: by the operator"
    assert bed.rows("SELECT rollback FROM orders")[0]["rollback"] is None


def test_changes_of_an_earlier_life_count(bed: Bed) -> None:
    """A daemon that is started again and again makes no more reloads an hour for that."""
    bed.now = lambda: 1_700_000_000.0
    bed.write(("a", "apply", ""))
    bed.run(windows=12)
    made = len(bed.rows("SELECT * FROM decision WHERE outcome = 'applied'"))
    loop = ControlLoop(SPACE, OBJECTIVE, ScriptedAgent())
    counted = []
    loop.memory.count_change = lambda now, cost: counted.append((now, cost))  # type: ignore[method-assign]

    store = bed.store()
    recount(store, 1, loop, 500.0, bed.now() + 60.0)
    recount(store, 1, loop, 500.0, bed.now() + 3601.0)
    store.close()

    assert made > 0
    assert len(counted) == made
    assert {now for now, _ in counted} == {440.0}
    assert {cost for _, cost in counted} <= {ApplyCost.RELOAD, ApplyCost.IN_PLACE}


def test_orders_need_a_store(tmp_path: Path) -> None:
    """None is made by mistake."""
    result = CliRunner().invoke(app, ["pause", "a", "--state", str(tmp_path / "none.db")])

    assert isinstance(result.exception, StorageError)
    assert not (tmp_path / "none.db").exists()
