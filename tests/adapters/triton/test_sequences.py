"""Random sequences of what a tuner, an operator, crashes and full disks do to one model of a Triton.

Whatever happens, once all has come to rest the operator's last deployment is served, with his knobs or those
that we applied last; a change that was refused has changed nothing; every error is one of the adapter; totals
neither fall nor count twice; and after a restore the configuration and its file are the operator's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.text_format import MessageToString

from tests.adapters.triton.pretended import Bed
from tuner.adapters.triton.configuration import normal_form


def run(seed: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play one sequence; what happened in it is a note of its error."""
    bed = Bed(seed, root, monkeypatch)
    rng, journal = bed.rng, bed.journal
    journal.append(f"polls {bed.server.polls}")
    try:
        for _ in range(rng.randint(1, 6)):
            bed.busy = rng.choice([0.0, 0.02, 0.1])
            while bed.backend is None:
                bed.connect()
                if bed.backend is None:
                    bed.busy = 0.0
                    bed.settle()
            faults = {}
            if rng.random() < 0.4:
                faults = {
                    rng.choice(["kill_at", "fail_at"]): rng.randint(1, 60),
                    "interrupts": rng.random() < 0.3,
                }
            bed.apply(**faults)
            bed.count()
            if rng.random() < 0.4:
                bed.act()
            if rng.random() < 0.5:
                bed.settle()
                bed.check()
                bed.count()
        bed.busy = 0.0
        bed.settle()
        bed.check()
        bed.count()
        if bed.backend is None:
            bed.connect()
        assert bed.backend is not None
        backend, untouched = bed.backend, bed.opened_word == bed.word
        error = bed.call("restore", backend.restore)
        bed.settle()
        assert error is None or "deployed anew" in str(error), error
        if untouched:
            assert normal_form(bed.config()) == normal_form(backend.original)
            assert not bed.server.polls or bed.file.read_text() == bed.text
            assert "servetune" not in MessageToString(bed.server.running)
        left = {path.name for path in bed.file.parent.iterdir()} - {"config.pbtxt"}
        assert not left or any("killed" in line for line in journal), left
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", *journal]))
        raise


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's last deployment is served, and what he wrote comes back."""
    run(seed, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1200, 50))
def test_whatever_else_happens(first: int, tmp_path: Path) -> None:
    """The same, by the dozen."""
    for seed in range(first, first + 50):
        with pytest.MonkeyPatch.context() as monkeypatch:
            (tmp_path / str(seed)).mkdir()
            run(seed, tmp_path / str(seed), monkeypatch)
