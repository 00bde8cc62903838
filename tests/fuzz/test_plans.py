"""Thousands of damaged files of the dispatcher, the simulator and the planners, and of reports."""

from __future__ import annotations

import contextlib
import io
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from onnx import ModelProto

from tests.dispatch.test_journal import twenty_requests
from tests.fuzz.mutation import damaged_bytes, damaged_text, rounds
from tests.fuzz.test_files import Sound, another_array
from tests.fuzz.test_grpc import damaged
from tests.planning.prefix.networks import onnx_variant
from tests.report.test_report import recorded
from tuner.cluster.scenario import Scenario
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.journal import IMPOSSIBLE, Journal, explain
from tuner.errors import InvalidInput, StorageError, TunerError
from tuner.files.yaml_file import load_yaml
from tuner.planning.prefix import families
from tuner.planning.prefix.onnx_model import cut_onnx, load_onnx, read_onnx
from tuner.planning.rounds.form import ModelsFile
from tuner.planning.rounds.replay import read_replay
from tuner.planning.rounds.simulation import replay_rounds
from tuner.report.folder import redraw_report

few_rounds, very_few_rounds = partial(rounds, count=2_000), partial(rounds, count=100)
pytestmark = pytest.mark.usefixtures("quiet")
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


DISPATCH = """listen: {grpc: "127.0.0.1:9100", http: "127.0.0.1:9101", control: "127.0.0.1:9102"}
MORE
sessions:
  - {name: a, slo_ms: 50, max_batch: 8, backends: ["triton://h:1/a?http=2&version=2", "triton://h:3/a?http=4"]}
  - {name: b, slo_ms: 5.5, queue: 9, profile: {alpha_ms: 1, beta_ms: 2}, backends: ["tfserving://g:1/b"]}
"""
DISPATCH_MORE = (
    *("policy: symphony", "policy: kairos", "policy: symphony_paper", "options: {deferral: 0.2, drop: lazy}"),
    *("network: {control_ms: 1, response_ms: 1}", "quantile: 0.9", "instances: 2"),
    *("tracing: {endpoint: 'http://h:4317', ratio: 0.1}", "policy: timeout\noptions: {preferred: [4, 8]}"),
)


@few_rounds
def test_dispatch_yaml(random: Random, folder: Path) -> bool:
    """It is a dispatcher's file, which says how to schedule, or refused in a sentence that names it."""
    path = folder / "dispatch.yaml"
    text = damaged_text(random, DISPATCH.replace("MORE", random.choice(DISPATCH_MORE)), most=2)
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(TunerError):
        load_yaml(path, DispatchConfig).rules()
        return True
    return False


SCENARIOS = [(EXAMPLES / name).read_text() for name in ("cluster.yaml", "mixed.yaml", "epochs.yaml")]


@few_rounds
def test_scenario(random: Random, folder: Path) -> bool:
    """It says what cluster to simulate, or search or place, or is refused in a sentence that names it."""
    path = folder / "scenario.yaml"
    text = damaged_text(random, random.choice(SCENARIOS), most=2)
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(TunerError):
        scenario = load_yaml(path, Scenario, **random.choice([{}, {"use": "simulate"}, {"use": "goodput"}]))
        scenario.cluster_spec()
        return True
    return False


JOBS, MODELS = ((EXAMPLES / name).read_text() for name in ("replay.csv", "replay-models.yaml"))


@few_rounds
def test_replay_log(random: Random, folder: Path) -> bool:
    """Its jobs can be served, or it is refused in a sentence that names the line."""
    jobs, models = folder / "jobs.csv", folder / "models.yaml"
    whole = random.random() < 0.5
    jobs.write_text(JOBS if whole else damaged_text(random, JOBS, most=2), errors="replace")
    models.write_text(damaged_text(random, MODELS, most=2) if whole else MODELS, errors="replace")
    with contextlib.suppress(TunerError):
        known = load_yaml(models, ModelsFile).by_name()
        found = [one for one in read_replay(jobs) if one.model in known]
        list(islice(replay_rounds(found, known, accelerators=4, seconds=60.0), 100))
        return True
    return False


@pytest.fixture(scope="module")
def log(folder: Path) -> Sound:
    """The arrays of a dispatcher's event log."""
    path = folder / "log.npz"
    twenty_requests().journal.save(path)
    with np.load(path) as read:
        return Sound(dict(read))


ODD = (-1, 0, 1, 3, 99, 2**40, 1e300, np.nan)


@few_rounds
def test_event_log(random: Random, folder: Path, log: Sound) -> bool:
    """It is replayed and explained, or refused; compiled code meets nothing that it would write anywhere."""
    packed, path = io.BytesIO(), folder / "damaged.npz"
    arrays = {name: array.copy() for name, array in log.files.items()}
    header = arrays["header"].tobytes().decode()
    entries = arrays[random.choice([name for name in arrays if name.endswith(".entries")])]
    kind = random.randrange(4)
    if kind == 0:
        header = damaged_text(random, header, most=1)
    elif kind == 1 and entries.size:
        field, value = random.choice(entries.dtype.names), random.choice(ODD)
        with contextlib.suppress(ValueError, OverflowError):
            entries[field][random.randrange(entries.size)] = value
    arrays["header"] = np.frombuffer(header.encode(errors="replace"), np.uint8)
    np.savez(packed, allow_pickle=False, **arrays)
    content = another_array(random, packed.getvalue()) if kind == 2 else packed.getvalue()
    path.write_bytes(damaged_bytes(random, content) if kind == 3 else content)
    with contextlib.suppress(StorageError):
        journal = Journal.load(path)
        with contextlib.suppress(*IMPOSSIBLE):
            for segment in journal.segments:
                segment.replay()
                explain(segment, 3)
            return True
    return False


@few_rounds
def test_onnx(random: Random, folder: Path) -> bool:
    """It is cut where it differs from another one, or refused in a sentence."""
    models = [onnx_variant("", head=head).SerializeToString() for head in (0, 1)]
    paths = [folder / "a.onnx", folder / "b.onnx"]
    for path, content in zip(paths, models, strict=True):
        path.write_bytes(content)
        with contextlib.suppress(DecodeError):
            path.write_bytes(damaged(random, ModelProto, content).SerializeToString())
    with contextlib.suppress(InvalidInput):
        read = [load_onnx(path) for path in paths]
        for group in families([read_onnx(one, str(place)) for place, one in enumerate(read)], 0.5):
            cut_onnx([read[int(graph.name)] for graph in group.graphs], group)
        return True
    return False


REPORT = recorded().model_dump_json()


@very_few_rounds
def test_report(random: Random, folder: Path) -> bool:
    """Its page is drawn, or it is refused in a sentence that names it."""
    (folder / "report.json").write_text(damaged_text(random, REPORT, most=2), errors="replace")
    with contextlib.suppress(StorageError):
        redraw_report(folder)
        return True
    return False
