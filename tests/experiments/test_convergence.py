"""What windows until RRL is near the best are judged by, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Run
from tests.experiments.quick import quick
from tuner.errors import InvalidInput
from tuner.experiments.frame.options import ExperimentOptions
from tuner.experiments.live import triton_convergence
from tuner.experiments.live.testbed import RATES
from tuner.experiments.live.triton_convergence import TritonConvergence
from tuner.experiments.live.triton_sweep import load_sweep, sweep_file

STORED = Path(__file__).parents[2] / "experiments" / "results"


def test_no_server_is_started_before_its_yardstick_is_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an hour of windows was lost."""
    monkeypatch.delattr(triton_convergence, "triton")

    ended = run("experiment", "run", "triton-convergence", "--quick", "--json", f"{tmp_path}/x.json")

    assert ended.code == 2
    assert "triton-sweep-140.json has 0 of the 10 configurations that this needs; run" in ended.err
    assert "`tuner experiment run triton-sweep --quick` first" in ended.err


def test_ctrl_c_keeps_the_seeds_that_are_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are judged as in a run with so many; a first one that is not complete is nothing to judge."""
    interrupted = 2

    def tune(_: TritonConvergence, seed: int) -> tuple[triton_convergence.Traces, dict[str, Any]]:
        if seed == interrupted:
            raise KeyboardInterrupt
        return {f"cold seed {seed}": {}}, {f"cold seed {seed}": [{"rate": 140.0}]}

    def judge(_: TritonConvergence, traces: triton_convergence.Traces) -> tuple[Any, Any]:
        return {"cold at 140 r/s: first found": [1.0] * len(traces)}, {"judged": list(traces)}

    monkeypatch.setattr(TritonConvergence, "_tune_both", tune)
    monkeypatch.setattr(TritonConvergence, "_judge", judge)
    stopping = quick(TritonConvergence, seeds=4, folder=STORED)
    result = stopping.run()

    assert stopping.stopped
    assert result == quick(TritonConvergence, seeds=2, folder=STORED).run()
    assert (result.seeds, result.details["judged"]) == (2, ["cold seed 0", "cold seed 1"])
    interrupted = 0
    with pytest.raises(KeyboardInterrupt):
        quick(TritonConvergence, seeds=4, folder=STORED).run()


def test_the_stored_sweeps_are_complete(tmp_path: Path) -> None:
    """Also for a quick run, whose grid is a part of theirs. One that was interrupted is not."""
    TritonConvergence(ExperimentOptions(seeds=1, folder=STORED)).prepare()
    quick(TritonConvergence, folder=STORED).prepare()

    interrupted = load_sweep(STORED, RATES[0])
    interrupted.rows.pop()
    interrupted.save(sweep_file(tmp_path, RATES[0]))
    with pytest.raises(InvalidInput, match="has 41 of the 42 configurations"):
        TritonConvergence(ExperimentOptions(seeds=1, folder=tmp_path)).prepare()
