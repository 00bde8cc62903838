"""``tuner plan replay``: a log of jobs, round by round."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.planning import EXAMPLES
from tests.command_line import Run


def test_a_log_is_replayed(run: Run) -> None:
    """Rounds are shown and stored; a broken line and an unknown model end it."""
    models, log = EXAMPLES / "replay-models.yaml", EXAMPLES / "replay.csv"
    options = ("--models", str(models), "--accelerators", "2")

    code, out, err = run("plan", "replay", str(log), *options, "--json", "r.json")

    stored = json.loads(Path("r.json").read_text())
    assert (code, err) == (0, "")
    assert "3 rounds" in out
    assert [one["jobs"] for one in stored["rounds"]] == [3, 2, 2]
    assert stored["rounds"][0]["bad_rate"] == 0
    assert stored["unserved"] == []
    Path("b.csv").write_text("1, a, 200, 64, 0\n2, a, 200\n")
    assert "b.csv line 2" in run("plan", "replay", "b.csv", *options)[2]
    Path("u.csv").write_text("1, z, 200, 64, 0\n2, a, 20, 64, 0\n")
    code, _, err = run("plan", "replay", "u.csv", *options)
    assert (code, "job 1 is of z" in err) == (2, True)


def test_a_mistyped_profile_is_refused(run: Run) -> None:
    """A table that falls is no repaired measurement here."""
    Path("l.csv").write_text("1, a, 200, 64, 0\n")
    Path("m.yaml").write_text("models: [{name: a, profile_ms: {4: 500, 8: 75}}]")

    code, out, err = run("plan", "replay", "l.csv", "--models", "m.yaml", "--accelerators", "2")

    assert (code, out) == (2, "")
    assert "models[0].profile_ms: must not fall, but a batch of 8 takes 75 ms after 500 ms" in err


def test_jobs_that_are_never_in_time_are_an_error_beside_the_rounds_of_the_others(run: Run) -> None:
    """Named in the stored rounds and in one error."""
    Path("l.csv").write_text("1, a, 20, 64, 0\n2, a, 200, 64, 0\n")
    models = str(EXAMPLES / "replay-models.yaml")

    code, out, err = run("plan", "replay", "l.csv", "--models", models, "--accelerators", "2", "--json", "l")

    assert (code, err.count("error:"), "no accelerator serves in time: jobs 1; " in err) == (2, 1, True)
    assert "1 rounds" in out
    assert json.loads(Path("l").read_text())["unserved"] == ["1"]
    Path("n.csv").write_text("1, a, 20, 64, 0\n")
    _, _, err = run("plan", "replay", "n.csv", "--models", models, "--accelerators", "2")
    assert err == "error: n.csv: no accelerator serves in time: jobs 1\n"
