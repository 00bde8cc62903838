"""The commands over the simulated server: what they print, store and leave behind."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tests.builders import configuration, measurement
from tests.command_line import Run, Say
from tests.control.daemon.file_server import FileServer
from tuner.adapters import ApplyReport
from tuner.cli import session
from tuner.cli.sweep import to_measure, without_effect
from tuner.control.drive.sweep import SweepResult
from tuner.envs.simulator.backend import triton_space
from tuner.envs.simulator.server import MODELS
from tuner.errors import Refused
from tuner.knobs import Configuration, Grids
from tuner.laboratory import calibration
from tuner.profiler import attachment
from tuner.profiler.attachment import Attachment, attach
from tuner.profiler.source import ClientSample
from tuner.report import Report
from tuner.setting import Load
from tuner.workload.notation import parse_arrival


def test_observe_prints_windows(tuner: Say) -> None:
    """One JSON object per interval, with load and latency."""
    lines = tuner("observe", "sim://mlp?rate=100", "--every", "5s", "--count", "3", "--json").splitlines()

    windows = [json.loads(line) for line in lines]
    assert [w["disturbed"] for w in windows] == [[], [], []]
    assert all(80 < w["arrival_rate"] < 120 for w in windows)


def test_a_run_without_traffic_says_what_it_lacks(tuner: Say) -> None:
    """It is no neighbour that disturbs its windows."""
    said = tuner("run", "sim://mlp?rate=0.0001", "--slo", "p95=30ms", "--windows", "2", "--dry-run")
    printed = " ".join(said.split())

    assert "no request came in 2 of 2 windows: come back when the model has traffic" in printed
    assert "or give --rate 20 to send some, unless the model is decoupled or stateful" in printed
    assert "neighbours" not in printed


def test_a_run_with_few_requests_says_that_its_windows_take_long(tuner: Say) -> None:
    """Once, before the first of them; the lines show tenths of requests per second."""
    command = ("run", "sim://mlp?rate=0.5", "--slo", "p95=30ms", "--windows", "5", "--window", "5s")
    printed = tuner(*command, "--dry-run")

    assert printed.count("few requests come, or few are timed: the next windows take 30 s") == 1
    assert " 0.5 r/s" in printed or " 0.4 r/s" in printed or " 0.6 r/s" in printed


def test_a_run_toward_a_long_slo_says_why_its_windows_take_long(tuner: Say) -> None:
    """It is not for the want of requests."""
    printed = tuner(
        "run", "sim://mlp?rate=20", "--slo", "p95=20s", "--windows", "2", "--window", "5s", "--dry-run"
    )

    assert "the SLO is long: the next windows take 20 s" in printed
    assert "few requests come" not in printed


@pytest.mark.usefixtures("figures")
def test_run_writes_a_report_and_ends_with_a_good_configuration(tuner: Say, tmp_path: Path) -> None:
    """The report holds every window with its reason, and the SLO is kept at the end."""
    printed = tuner("run", "sim://mlp?rate=150&seed=3", "--slo", "p95=30ms", "--windows", "12", "--out", "r")

    report = Report.load(tmp_path / "r" / "report.json")
    assert len(report.windows) == 12
    assert all(w.reason for w in report.windows)
    assert report.reconfigurations > 0
    assert "the server runs" in printed
    assert "<svg" in (tmp_path / "r" / "report.html").read_text()
    assert json.loads((tmp_path / "r" / "state.json").read_text())["last_good"]


def test_a_character_that_the_locale_lacks_ends_no_run(tuner: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tick beside a latency that keeps the SLO is written as its number."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stream)

    tuner("run", "sim://mlp?rate=50&seed=3", "--slo", "p95=90ms", "--windows", "1", "--out", "r")

    stream.seek(0)
    printed = stream.read()
    assert "\\u2713" in printed
    assert "report: r/report.html" in printed


def test_a_name_that_is_no_text_ends_no_run(tuner: Say) -> None:
    """A folder from before UTF-8: its bytes stand in the report's command as codes."""
    name = os.fsdecode(b"caf\xe9")

    tuner("run", "sim://mlp?rate=50&seed=3", "--slo", "p95=90ms", "--windows", "1", "--out", name)

    assert Report.load(Path(name, "report.json")).command.endswith("--out caf\\udce9")
    assert "caf\\udce9" in Path(name, "report.html").read_text()


def test_what_a_window_of_virtual_time_shows_is_learned_before_it_is_decided(tuner: Say) -> None:
    """An overloaded default is left after its first window, and the same seed makes the same decisions."""
    printed = [
        tuner("run", "sim://mlp?rate=350&seed=3", "--slo", "p95=30ms", "--windows", "2", "--out", out)
        for out in ("one", "other")
    ]

    first, second = ([line for line in text.splitlines() if "report:" not in line] for text in printed)
    assert "apply → batch" in first[1]
    assert first == second


def test_dry_run_changes_nothing(tuner: Say, tmp_path: Path) -> None:
    """Decisions are shown with the configurations that they name; the default one stays."""
    printed = tuner(
        "run", "sim://mlp?rate=180", "--slo", "p95=30ms", "--windows", "3", "--out", "r", "--dry-run"
    )

    report = Report.load(tmp_path / "r" / "report.json")
    decided = [w.decided_configuration for w in report.windows if w.decision == "apply"]
    assert decided
    assert all(wanted != w.configuration for wanted, w in zip(decided, report.windows, strict=False))
    assert "would apply → batch" in printed
    assert "the last decision was to run batch" in printed
    assert {tuple(w.configuration.values()) for w in report.windows} == {(1.0, 0.0, 1.0)}
    assert report.reconfigurations == 0


def test_what_is_restored_at_the_end_is_what_the_state_says(tuner: Say, tmp_path: Path) -> None:
    """The file says what the server runs, not what ran before the end."""
    tuner("run", "sim://mlp?rate=180", "--slo", "p95=30ms", "--windows", "6", "--out", "r", "--restore")

    state = json.loads((tmp_path / "r" / "state.json").read_text())
    assert Report.load(tmp_path / "r" / "report.json").reconfigurations > 0
    assert state["current"] == state["original"]


def test_what_cannot_be_restored_ends_the_run_with_an_error(
    fails: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on only after a success learns it; the report is written all the same."""

    def refuse(_: Attachment) -> None:
        raise Refused("the model was deployed anew")

    monkeypatch.setattr(Attachment, "restore", refuse)

    said = fails(
        "run", "sim://mlp?rate=180", "--slo", "p95=30ms", "--windows", "3", "--out", "r", "--restore"
    )

    assert "error: could not restore the original configuration: the model was deployed anew" in said
    assert (tmp_path / "r" / "report.json").is_file()


def test_runs_of_the_same_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None overwrites the report of another; a folder that somebody names is used again."""

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls(2026, 11, 29, 12, 0, 0, tzinfo=tz)

    monkeypatch.setattr(session, "datetime", Stopped)
    monkeypatch.chdir(tmp_path)

    made = [session.new_run_folder(None).name for _ in range(3)]

    assert made == ["2026-11-29_12-00-00", "2026-11-29_12-00-00-2", "2026-11-29_12-00-00-3"]
    assert session.new_run_folder(Path("named")) == session.new_run_folder(Path("named"))


def test_a_dry_run_restores_nothing(tuner: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator may have deployed something else meanwhile."""

    def never(_: Attachment) -> None:
        pytest.fail("it was restored")

    monkeypatch.setattr(Attachment, "restore", never)

    tuner(
        "run", "sim://mlp?rate=180", "--slo", "p95=30ms", "--windows", "1", "--out", "r",
        "--dry-run", "--restore",
    )  # fmt: skip


def test_sweep_measures_the_grid_and_only_that(tuner: Say, tmp_path: Path) -> None:
    """A knob that is not in the grid keeps its value."""
    tuner("sweep", "sim://mlp", "--rate", "150", "--grid", "max_batch_size=1,8", "--grid", "instances=1,2")

    result = SweepResult.load(tmp_path / "sweep.json")
    assert len(result.rows) == 4
    assert {row.configuration["max_queue_delay"] for row in result.rows} == {0.0}
    assert result.ranked()[0].median("latency_p95") > 0


def test_a_sweep_keeps_what_has_no_grid_as_it_is() -> None:
    """Also where that is on no grid; and a batch of 1 is measured, at which the delay has no effect."""
    space = triton_space(MODELS["mlp"], {"max_batch_size": (1.0, 4.0, 16.0)})
    running = Configuration(max_batch_size=8, max_queue_delay=0.003, instances=8)

    chosen = to_measure(space, ["max_batch_size"], running)

    assert [space.format(configuration) for configuration in chosen] == [
        "max_batch_size=1 max_queue_delay=0ms instances=8",
        "max_batch_size=4 max_queue_delay=3ms instances=8",
        "max_batch_size=16 max_queue_delay=3ms instances=8",
    ]
    assert len(to_measure(space, [], running)) == space.distinct.size


def test_a_sweep_says_which_grid_has_no_effect(tuner: Say) -> None:
    """All its values are one configuration, whose row shows what is in force."""
    printed = tuner("sweep", "sim://mlp", "--rate", "100", "--grid", "max_queue_delay=1ms,5ms")

    note = "note: max_queue_delay has no effect at max_batch_size=1; give --grid max_batch_size= with other"
    assert note in printed
    assert [line.split("·")[1].strip() for line in printed.splitlines() if "batch 1 ·" in line] == [
        "delay 0ms"
    ]


def test_a_grid_with_an_effect_somewhere_needs_no_note() -> None:
    """Nor does one that nobody has given."""
    space = triton_space(MODELS["mlp"], {"max_batch_size": (1.0, 4.0), "max_queue_delay": (0.001, 0.005)})
    chosen = to_measure(space, ["max_batch_size", "max_queue_delay"], space.default)

    assert without_effect(space, ["max_batch_size", "max_queue_delay"], chosen) == []
    assert without_effect(space, ["max_batch_size"], chosen[:1]) == []
    assert len(without_effect(space, ["max_queue_delay"], chosen[:1])) == 1


@pytest.mark.parametrize(("takes", "code"), [((1,), 0), ((), 2)])
def test_a_sweep_says_what_the_server_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: tuple[int, ...], code: int
) -> None:
    """With its words; one that could measure nothing has failed. All is in the file."""

    class Small(FileServer):
        def apply(self, wanted: Configuration) -> ApplyReport:
            if wanted["max_batch_size"] not in (3, *takes):
                raise Refused(f"no memory for {wanted['max_batch_size']:g}")
            return super().apply(wanted)

    server = Small(tmp_path / "server")
    server.set(configuration(3))  # which is on no grid
    monkeypatch.setattr(attachment, "connect", lambda *_: server)

    ended = run("sweep", "sim://x", "--rate", "200", "--grid", "max_batch_size=1,4")

    said = " ".join(ended.said.split())
    assert ended.code == code
    if code:
        assert ended.err.startswith("error: --grid: the server refused every configuration: no memory for 1;")
    else:
        assert "refused: batch 4 · delay 0ms · parallelism 1: no memory for 4" in said
    rows = SweepResult.load(tmp_path / "sweep.json").rows
    assert [row.refused for row in rows if row.configuration["max_batch_size"] == 4] == ["no memory for 4"]


@pytest.mark.parametrize(("shared", "code"), [({8}, 0), ({1, 2, 4, 8, 16}, 2)])
def test_a_sweep_says_what_was_disturbed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: set[int], code: int
) -> None:
    """Such figures come last, however good they look; a sweep without any other has failed."""

    class Shared(FileServer):
        def sample(self, start: float, end: float) -> ClientSample:
            self.quiet = self.current()["max_batch_size"] not in shared
            return super().sample(start, end)

    monkeypatch.setattr(attachment, "connect", lambda *_: Shared(tmp_path / "server"))

    ended = run("sweep", "sim://x", "--rate", "200", "--grid", "max_batch_size=1,2,4,8,16", "--repeats", "2")

    why = "our own load was sent 1000 ms late (limit 20 ms)"
    assert ended.code == code
    if code:
        assert ended.err.startswith(
            f"error: sweep: every window was disturbed, the last one: {why}; sweep.json"
        )
    else:
        table = [line.split("·")[0].split()[-1] for line in ended.out.splitlines() if " of 2 " in line]
        assert sorted(table[:-1]) == ["1", "16", "2", "4"]
        assert table[-1] == "8"
        assert ended.out.count("0 of 2") == 1
        assert f"disturbed: batch 8 · delay 0ms · parallelism 1: {why}" in ended.out
    assert len(SweepResult.load(tmp_path / "sweep.json").rows) == 5


def test_a_sweep_says_that_it_needs_a_load(tuner: Say) -> None:
    """It never watches the server's own traffic, as other commands do without a rate."""
    printed = " ".join(tuner("sweep", "--help").replace("│", " ").split())

    assert "This or --arrival is required." in printed
    assert "own traffic" not in printed


def test_a_sweep_under_a_schedule_has_no_single_rate(
    tuner: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table names the arrival process; a simulated server stands in for a live one, which takes those."""
    schedule = "step:30s@100,30s@300"

    @contextmanager
    def attached(target: str, *, load: Load, grids: Grids, **_: object) -> Iterator[Attachment]:
        with attach(target, grids=grids, load=Load(rate=100.0)) as attachment:
            assert load.arrival is not None
            sent: Any = SimpleNamespace(arrival=parse_arrival(load.arrival))
            yield replace(attachment, load=sent)

    monkeypatch.setattr("tuner.profiler.attachment.attach", attached)

    printed = tuner("sweep", "sim://mlp", "--arrival", schedule, "--grid", "max_batch_size=1,8")

    assert f"under {schedule}, best p95 first" in printed
    result = SweepResult.load(tmp_path / "sweep.json")
    assert result.rate is None
    assert len(result.rows) == 2


@pytest.mark.compiled
def test_recommend_says_what_and_why(tuner: Say, tmp_path: Path) -> None:
    """An overloaded default is to be changed; the advice says how sure it is, and what it rests on."""
    printed = tuner("recommend", "sim://mlp?rate=180", "--slo", "p95=30ms", "--json", "advice.json")

    advice = json.loads((tmp_path / "advice.json").read_text())
    assert advice["change"]
    assert advice["configuration"]["max_batch_size"] > 1
    assert advice["rows"][1]["uncertainty"] > 0
    assert "±" in printed
    assert "rests on 3 windows of the present configuration" in " ".join(printed.split())


@pytest.mark.compiled
def test_train_then_run_from_the_policy(tuner: Say, tmp_path: Path) -> None:
    """What was learned in simulation is where the run starts: no window is spent on searching."""
    tuner("train", "--out", "policy", "--rate", "300", "--windows", "60")

    tuner(
        "run",
        "sim://mlp?rate=300&seed=9",
        "--slo",
        "p95=30ms",
        "--policy",
        "policy",
        "--windows",
        "5",
        "--out",
        "r",
    )

    windows = Report.load(tmp_path / "r" / "report.json").windows
    assert windows[-1].slo_kept


@pytest.mark.compiled
def test_calibrate_writes_a_server_that_simulates_alike(tuner: Say, tmp_path: Path) -> None:
    """Calibrating a simulated server gives its l(b) back within a tenth."""
    from tuner.envs.simulator.server import ServerModel

    said = tuner("calibrate", "sim://mlp", "--rate", "150", "--rate", "250", "--out", "server.json")

    printed = " ".join(said.split())
    assert "core-seconds, a rate is in requests/s, noise and sizes are the sigmas of lognormals" in printed
    fitted, true = ServerModel.load(tmp_path / "server.json"), ServerModel()
    assert fitted.execution(1) == pytest.approx(true.execution(1), rel=0.1)
    assert fitted.execution(8) == pytest.approx(true.execution(8), rel=0.1)


@pytest.mark.parametrize(
    ("kind", "rows", "counts"),
    [
        ("triton", 1.0, False),
        ("triton", 16.0, True),
        ("tfserving_gpu", 16.0, True),
        ("tfserving_cpu", 16.0, False),
    ],
)
def test_calibrate_says_that_a_row_is_a_request_of_its_model(
    tuner: Say, monkeypatch: pytest.MonkeyPatch, kind: str, rows: float, *, counts: bool
) -> None:
    """A policy that is trained there is for other loads on a server that batches requests of several."""
    from tuner.envs.simulator.models import KINDS

    windows = [replace(measurement(), request_rows=rows)]
    monkeypatch.setattr(calibration, "measure_model", lambda *_, **__: (KINDS[kind](), windows))

    said = " ".join(tuner("calibrate", "sim://mlp", "--out", "server.json").split())

    several = "100 requests/s of the server, with 16 rows each, are --rate 1600 of `tuner train`."
    assert (several in said) == counts


@pytest.mark.slow
def test_demo_over_the_simulated_server(tuner: Say, tmp_path: Path) -> None:
    """The whole demo in virtual time: before and after at two loads, the SLO kept, nothing failed."""
    printed = tuner("demo", "--simulated", "--out", "r", "--seed", "1")

    report = Report.load(tmp_path / "r" / "report.json")
    assert report.before is not None
    assert report.after is not None
    low, high = (level.rate for level in report.levels)
    assert high / low == pytest.approx(1.3 / 0.6, rel=0.1)
    assert [level.before.slo_kept for level in report.levels] == [True, False]
    assert report.after.p95_ms < report.before.p95_ms  # type: ignore[attr-defined]
    assert report.after.slo_kept
    assert report.failed_requests == 0
    assert "Before and after" in printed


def test_every_option_says_what_it_is_for() -> None:
    """Three said nothing; one of them because its words in brackets were taken for markup."""
    from rich.text import Text
    from typer.main import get_command

    from tuner.command import app

    def mute(command: Any) -> Iterator[str]:
        for one in command.params:
            if not Text.from_markup(one.help or "").plain.strip():
                yield f"{command.name} {one.opts[0]}"
        for inner in getattr(command, "commands", {}).values():
            yield from mute(inner)

    assert list(mute(get_command(app))) == []


def test_every_command_stands_under_what_it_is_for() -> None:
    """A list of thirty commands says to nobody which ones to begin with."""
    from typer.main import get_command

    from tuner.command import app

    panel = {name: command.rich_help_panel for name, command in get_command(app).commands.items()}  # type: ignore[attr-defined]
    assert [name for name, title in panel.items() if not isinstance(title, str)] == []
    assert panel["observe"] == panel["recommend"] == panel["run"] == "Tune one running server"
    assert panel["daemon"] == panel["config"] == panel["pause"] == "Keep many servers tuned"


def test_help_is_fast() -> None:
    """Nothing heavy is imported to print help (the benchmark with a number is in the experiments)."""
    code = "import sys, tuner.command; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"numpy", "torch", "grpc", "numba", "gymnasium", "matplotlib", "pydantic"} & set(loaded)


@pytest.mark.slow
def test_interrupting_a_run_leaves_a_report(tmp_path: Path) -> None:
    """Ctrl-C ends a run in good order: best configuration, report, exit code 0."""
    import signal

    command = [
        sys.executable,
        "-m",
        "tuner",
        "run",
        "sim://mlp",
        "--slo",
        "p95=30ms",
        "--out",
        str(tmp_path / "r"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 600
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().startswith("5 ") or time.monotonic() > deadline:
            break
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=240)[0]

    assert process.returncode == 0
    assert "leaving the server in good order" in rest
    assert (tmp_path / "r" / "report.json").exists()
