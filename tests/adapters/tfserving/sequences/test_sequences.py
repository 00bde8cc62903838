"""Random sequences of what tuners, operators, crashes and full disks do to one TensorFlow Serving.

Whatever happens, once all has come to rest:

* clients get the model that the operator wants, with his parameters or those that we applied last, and no
  request has failed meanwhile;
* a change that was refused has changed nothing;
* every error is one of the adapter, and says what it is about;
* after a restore the folder, the labels and the configuration file are the operator's, to the letter.

A sequence follows from its seed; what happened in it is a note of the error.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.tfserving.sequences.bed import Bed
from tests.adapters.tfserving.sequences.operator import MODEL, Operator


def faults(rng: random.Random) -> dict[str, Any]:
    """What goes wrong in one call of a tuner's."""
    kind, step = rng.random(), rng.randint(1, 120)
    if kind < 0.25:
        return {"kill_at": step}
    if kind < 0.35:
        return {"kill_at": step, "interrupts": True}
    if kind < 0.5:
        return {"fail_at": step}
    return {}


def run(seed: int, root: Path) -> None:
    """Play one sequence."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        bed = Bed(seed, root, monkeypatch)
        try:
            play(bed)
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}", *bed.journal]))
            raise


def play(bed: Bed) -> None:
    """Let tuners and the operator act by turns and at once, then restore."""
    rng = bed.rng
    careful = rng.random() < 0.5
    bed.settle()
    if rng.random() < 0.4:
        bed.open_rival()
    for _ in range(rng.randint(1, 6)):
        bed.busy = rng.choice([0.0, 0.01, 0.05]) if not careful else rng.choice([0.0, 0.02])
        fault = {} if careful else faults(rng)
        if bed.backend is None:
            bed.connect()
        if bed.backend is None:
            bed.busy = 0.0
            bed.settle()
            bed.connect()
            assert bed.backend is not None, "cannot connect"
        if rng.random() < 0.8:
            bed.apply(**fault)
        else:
            bed.restore(**fault)
        if rng.random() < 0.4:
            bed.journal.append("between:")
            bed.operator.act()
        if rng.random() < 0.5:
            bed.settle()
            bed.check()
        if rng.random() < 0.2:
            bed.backend = None
    bed.busy = 0.0
    bed.settle()
    bed.check()
    if bed.backend is None:
        bed.connect()
    assert bed.backend is not None, "cannot connect"
    if bed.rival is not None:
        with bed.world.tuner():
            bed.rival.restore()
        bed.settle()
    if bed.restore() and bed.connected_to_his and bed.to_clean:
        bed.check_restored()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens(seed: int, tmp_path: Path) -> None:
    """The operator's model is served, and what is his comes back."""
    run(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1100, 20))
def test_whatever_else_happens(first: int, tmp_path: Path) -> None:
    """The same, by the dozen."""
    for seed in range(first, first + 20):
        (root := tmp_path / str(seed)).mkdir()
        run(seed, root)


def test_the_operator_takes_no_number_that_the_server_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was removed, and the server has not seen that: another one would never be loaded."""
    rng = random.Random(0)
    monkeypatch.setattr(rng, "choice", lambda options: options[0])
    operator = Operator(rng, tmp_path, "", "")
    server = operator.start(polls=False)
    server.advance(10.0)
    newest = max(operator.numbers())
    (operator.base / str(newest)).rename(operator.base / str(newest + 1))
    server.advance(10.0)
    (operator.base / str(newest + 1)).rename(operator.base / "gone")

    operator.deploy()
    server.advance(10.0)

    served = server.answers(MODEL)
    assert served is not None
    assert served.weights == operator.deployed[operator.newest()][0]
