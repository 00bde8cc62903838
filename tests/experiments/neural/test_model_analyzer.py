"""What is made of Model Analyzer's files, and of searches that came to nothing; it is not run here."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest

from tests.experiments.quick import quick
from tuner.errors import AdapterError
from tuner.experiments.neural import model_analyzer
from tuner.experiments.neural.analyzer import (
    MODES,
    Effort,
    NoResult,
    SearchResult,
    run_to_end,
    search_result,
    settings_of,
)
from tuner.experiments.neural.bench import DEFAULT, Bench, Tuned
from tuner.experiments.neural.model_analyzer import Contest, ModelAnalyzer
from tuner.knobs import Configuration

BENCH = Bench("small", 61.5, 0.030)
TABLE = """Model,Model Config Path,p95 Latency (ms)
small,small_config_1,9.6
small,small_config_default,350.6

"""
LOG = """[Model Analyzer] Using remote Triton Server
[Model Analyzer] Creating model config: small_config_default
[Model Analyzer]\x20
[Model Analyzer] Profiling small_config_default: request-rate-range=61.5
[Model Analyzer] Creating model config: small_config_1
[Model Analyzer]   Setting instance_group to [{'count': 2, 'kind': 'KIND_CPU'}]
[Model Analyzer]\x20
[Model Analyzer] Profiling small_config_1: request-rate-range=61.5
[Model Analyzer] Existing measurement found for run config. Skipping profile
"""
VARIANTS = {
    "small_config_1": """name: "small" max_batch_size: 8 backend: "python"
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { max_queue_delay_microseconds: 2000 }""",
    "small_config_default": """name: "small" max_batch_size: 64 backend: "python"
instance_group { count: 1 kind: KIND_CPU }""",
}
LEFT = Configuration(max_batch_size=8, max_queue_delay=0.002, instances=2)
OURS, SHORT, QUICK, OPTUNA = (
    "tuner run",
    "tuner run, short windows",
    "Model Analyzer, quick",
    "Model Analyzer, optuna",
)


@pytest.fixture
def left_files(tmp_path: Path) -> Path:
    """What a search left: recorded from version 1.58.0, cut short."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "metrics-model-inference.csv").write_text(TABLE)
    (tmp_path / "log").write_text(LOG)
    for name, text in VARIANTS.items():
        (tmp_path / "variants" / name).mkdir(parents=True)
        (tmp_path / "variants" / name / "config.pbtxt").write_text(text)
    return tmp_path


def test_the_first_row_is_the_answer(left_files: Path) -> None:
    """In the values of our knobs; what was known already is no measurement."""
    assert search_result(left_files, "small", 12.0) == SearchResult(LEFT, 12.0, 2)


def test_a_model_without_a_batcher_is_one_with_batches_of_one(left_files: Path) -> None:
    """As the server's own configuration is, which may be the best."""
    header, first, second, _ = TABLE.split("\n", 3)
    (left_files / "results" / "metrics-model-inference.csv").write_text("\n".join((header, second, first)))

    found = search_result(left_files, "small", 1.0).left

    assert found == Configuration(max_batch_size=1, max_queue_delay=0.0, instances=1)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (None, "no table: .*Skipping profile"),
        ("Model,Model Config Path\n", "names no configuration: ''"),
        ("Model,Model Config Path\nsmall,small_config_7\n", "names no configuration: 'small_config_7'"),
    ],
    ids=["none", "empty", "unknown"],
)
def test_a_search_without_a_result_says_why(left_files: Path, table: str | None, reason: str) -> None:
    """Whatever of its files is missing."""
    path = left_files / "results" / "metrics-model-inference.csv"
    path.unlink()
    if table is not None:
        path.write_text(table)

    with pytest.raises(NoResult, match=reason):
        search_result(left_files, "small", 1.0)


@pytest.mark.parametrize("mode", MODES)
def test_all_is_measured_at_the_rate_of_the_bench(mode: str) -> None:
    """With the arrivals, the statistic and the length of a window that ours have; and JSON can hold it."""
    settings = json.loads(json.dumps(settings_of(mode, BENCH, Effort(6.0, 12))))

    flags = settings["perf_analyzer_flags"]
    assert flags["request-rate-range"] == BENCH.rate
    assert flags["request-distribution"] == "poisson"
    assert flags["percentile"] == 95
    assert flags["measurement-interval"] == 2000
    assert settings["profile_models"]["small"]["cpu_only"]


def test_optuna_mode_draws_from_our_grid_with_its_delays() -> None:
    """Not from loads, which it would try as well if no rate were given."""
    model = settings_of("optuna", BENCH, Effort(5.0, 12))["profile_models"]["small"]

    knobs = model["model_config_parameters"]
    assert model["parameters"] == {"request_rate": [62]}
    assert knobs["max_batch_size"] == [1, 2, 4, 8, 16, 32]
    assert knobs["instance_group"][0]["count"] == [1, 2]
    assert knobs["dynamic_batching"] == {"max_queue_delay_microseconds": [0, 2000, 5000, 10000]}


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    """With its last line and its exit code."""
    command = ["sh", "-c", 'echo "$GREETING"; exit 3']

    assert run_to_end(command, tmp_path, {"GREETING": "no server"}, 60.0) == "it ended with 3: no server"
    assert run_to_end(["true"], tmp_path, {}, 60.0) == ""


def test_a_program_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    """In whatever session they are."""
    command = ["sh", "-c", "setsid sleep 600 & echo $! > child; wait"]

    assert "not end within 5 s" in run_to_end(command, tmp_path, {}, 5.0)

    child = int((tmp_path / "child").read_text())
    until = time.monotonic() + 60.0
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.01)


def contest(model: str, ours: float, theirs: float, seconds: float) -> Contest:
    """Ours took 30 s, with short windows half of that; optuna mode came to nothing."""
    return Contest(
        bench=BENCH._replace(model=model),
        found={
            OURS: SearchResult(LEFT, 30.0, 6),
            SHORT: SearchResult(LEFT, 15.0, 6),
            QUICK: SearchResult(LEFT, seconds, 20),
        },
        missing={OPTUNA: "it ended with 1"},
        over_best={OURS: ours, SHORT: 2.0 * ours, QUICK: theirs},
        default_over_best=2.0 * ours,
    )


def test_ours_is_compared_in_the_median_and_at_worst() -> None:
    """And by the time of each model; a search without a result has the reason in its row."""
    contests = [
        contest("small", 1.0, 1.1, 200.0),
        contest("cnn", 1.1, 1.0, 150.0),
        contest("wide", 1.2, 1.5, 100.0),
    ]
    experiment = quick(ModelAnalyzer)

    rows = {row.id: row for row in experiment.rows({None: [contests]})}

    assert rows["the default: p95 over the best"].note == "small 2.00, cnn 2.20, wide 2.40"
    assert rows[f"{QUICK}: p95 of what it left, over the best"].high == 1.5
    assert rows[f"{OURS} over {QUICK}: p95 in the median"].measured == 1.0
    assert rows[f"{OURS} over {QUICK}: p95 at worst"].measured == 0.8
    assert rows[f"{OURS} over {QUICK}: time"].measured == 0.2
    assert rows[f"{SHORT} over {QUICK}: p95 in the median"].measured == 2.0
    assert rows[f"{SHORT} over {QUICK}: time"].measured == 0.1
    assert rows[f"{OPTUNA}: p95 of what it left, over the best"].measured is None
    assert (
        "cnn not measured, because it ended with 1"
        in rows[f"{OPTUNA}: p95 of what it left, over the best"].note
    )
    assert rows[f"{OURS} over {OPTUNA}: time"].measured is None
    assert json.loads(json.dumps(experiment.details({None: [contests]})))["wide"]["missing"]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rival cannot be installed, and no server is started."""

    def fail() -> Path:
        raise AdapterError("pip cannot download model-analyzer")

    monkeypatch.setattr(model_analyzer, "fetch_analyzer", fail)
    monkeypatch.setattr(model_analyzer, "choose_bench", lambda *_: BENCH)
    monkeypatch.setattr(model_analyzer, "ratios_to_best", lambda *_: {DEFAULT: 3.0, LEFT: 1.05})


@pytest.mark.usefixtures("alone")
def test_ours_is_measured_where_the_rival_cannot_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rival's rows say why it is missing; the default is measured, too."""
    monkeypatch.setattr(ModelAnalyzer, "_tune", lambda *_: SearchResult(LEFT, 30.0, 6))
    experiment = quick(ModelAnalyzer)

    contests = experiment.proceed()
    rows = {row.id: row for row in experiment.rows({None: [contests]})}

    assert contests[0].over_best == {OURS: 1.05, SHORT: 1.05}
    assert contests[0].default_over_best == 3.0
    assert "pip cannot download" in rows[f"{QUICK}: p95 of what it left, over the best"].note


@pytest.mark.usefixtures("alone")
def test_the_time_of_ours_begins_when_the_server_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the rival's does: the server takes 60 s to start, attaching 3 s and four windows of 5 or 1 s."""
    now = 0.0

    @contextmanager
    def taking(seconds: float) -> Iterator[Mock]:
        nonlocal now
        now += seconds
        yield Mock()

    def tune(*_: object, window: float) -> Tuned:
        nonlocal now
        now += 4.0 * window
        return Tuned([LEFT], LEFT, 4, 0)

    for name, stand_in in {
        "time": SimpleNamespace(monotonic=lambda: now),
        "EmbeddedTriton": lambda _: taking(60.0),
        "attach": lambda *_, **__: taking(3.0),
        "objective": Mock(),
        "RRL": Mock(),
        "tune": tune,
    }.items():
        monkeypatch.setattr(model_analyzer, name, stand_in)

    (contest,) = quick(ModelAnalyzer).proceed()

    assert contest.found == {OURS: SearchResult(LEFT, 23.0, 4), SHORT: SearchResult(LEFT, 7.0, 4)}
