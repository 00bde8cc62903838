"""Ten thousand damaged daemon's files, policies and stores."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration
from tests.control.store.store_bed import APPLY, entered, record, state
from tests.fuzz.mutation import NUMBERS, TEXTS, damaged_bytes, damaged_text, rounds
from tuner.agents.policy_file import read_policy
from tuner.agents.rrl import RRL
from tuner.agents.rrl.network.estimator import EstimatorParameters
from tuner.agents.rrl.parameters import RRLParameters
from tuner.agents.rrl.table.parameters import TableParameters
from tuner.control import ControlLoop
from tuner.control.daemon.config import DaemonConfig
from tuner.control.store.history import events, explain, history, windows
from tuner.control.store.next_life import recount, replay
from tuner.control.store.order_book import all_orders, orders_of, pin
from tuner.control.store.store import Store
from tuner.control.store.unfinished import unfinished_change, unjudged_change
from tuner.errors import InvalidInput, StorageError, TunerError
from tuner.files.yaml_file import load_yaml

pytestmark = pytest.mark.usefixtures("quiet")


FILE = "targets: [{name: a, url: 'sim://mlp', slo: p95=30ms, MORE}]\n"
MORE = (
    *("mode: observe", "knobs: {max_batch_size: [1, 8]}", "knobs: {instances: {least: 1, most: 4}}"),
    *(
        "guard: {budget: 0.05, reloads_per_hour: 6}",
        "maintenance: [{days: mon-fri, from: '22:00', to: '24:00'}]",
    ),
    *("sli: {prometheus: 'http://127.0.0.1:9090', query: x}", "seed: 3", "objective: cpu", "rate: 50"),
    *("url: 'triton://127.0.0.1:8001,h:2/mlp?metrics=8002'", "canary: true", "load: {trace: x}"),
)


@rounds
def test_yaml(random: Random, folder: Path) -> bool:
    """It is a daemon's file, or refused in a sentence that names it."""
    path = folder / "servetune.yaml"
    text = FILE.replace("MORE", random.choice(MORE))
    path.write_text(damaged_text(random, text, most=2), encoding="utf-8", errors="replace")
    with contextlib.suppress(TunerError):
        load_yaml(path, DaemonConfig)
        return True
    return False


class Sound(NamedTuple):
    """Files that are not damaged; hypothesis is not to print them."""

    files: Any

    def __repr__(self) -> str:
        return "Sound(...)"


@pytest.fixture(scope="module")
def policies(folder: Path) -> Sound:
    """The two files of a policy in each form."""
    found = []
    small = TableParameters(estimator=EstimatorParameters(hidden=(4,)))
    for parameters in (RRLParameters(), small):
        agent = RRL(SPACE, parameters, synchronous=True)
        agent.save(folder / "policy")
        agent.close()
        manifest = (folder / "policy" / "policy.json").read_text()
        found.append((manifest, (folder / "policy" / json.loads(manifest)["arrays"]).read_bytes()))
    return Sound(found)


@rounds
def test_policy(random: Random, folder: Path, policies: Sound) -> bool:
    """It is loaded, or refused; the sum of the archive is right, as that of whoever means harm."""
    manifest, archive = random.choice(policies.files)
    path, parts = folder / "damaged", json.loads(manifest)
    path.mkdir(exist_ok=True)
    kind = random.randrange(3)
    if kind == 0:
        archive = damaged_bytes(random, archive)
    elif kind == 1:
        archive = another_array(random, archive)
    digest = hashlib.sha256(archive).hexdigest()
    parts |= {"sha256": digest, "arrays": "arrays-0123456789abcdef.npz"}
    text = json.dumps(parts)
    (path / parts["arrays"]).write_bytes(archive)
    (path / "policy.json").write_text(damaged_text(random, text) if kind == 2 else text, errors="replace")
    with contextlib.suppress(StorageError, InvalidInput):
        if random.random() < 0.2:
            RRL.load(path, SPACE, synchronous=True).close()
        else:
            read_policy(path)
        return True
    return False


SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (3, 0), (2, 2), (1, 1, 1), (40,))
KINDS = ("f8", "f4", "i8", "u1", "?", "c16", "S3", "U2", "M8[s]")


def another_array(random: Random, archive: bytes) -> bytes:
    """Return an archive of which one array is another one, or has another name."""
    with np.load(io.BytesIO(archive)) as read:
        arrays: dict[str, Any] = dict(read)
    name = random.choice(list(arrays))
    shape = random.choice([*SHAPES, arrays[name].shape])
    array = np.full(shape, random.choice((0, 1, 100)), random.choice(KINDS))
    if array.dtype.kind == "f" and array.size:
        array.flat[random.randrange(array.size)] = random.choice((np.nan, np.inf, -1.0, 1e30, 1e-30, 0.0))
    arrays[random.choice([name, name, name, "other", "../x", "a" * 300])] = array
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


@pytest.fixture(scope="module")
def sound(folder: Path) -> Sound:
    """The bytes of a store of three windows."""
    path = folder / "sound.db"
    with closing(Store(path)) as store:
        target = entered(store)
        for number in range(3):
            store.decided(
                target, record(APPLY, number, outcome="recommended"), state(window=number), kept=True
            )
            store.note("as usual", target)
        pin(store, "a")
    return Sound(path.read_bytes())


ROLLBACK_JOURNAL = b"\x01\x01"
"""What the header of a store has for its journal if it is no write-ahead log."""
TABLES = ("target", "window", "decision", "event", "orders")


@rounds
def test_store(random: Random, folder: Path, sound: Sound) -> bool:
    """Whoever reads it gets what it holds, or a sentence; one value of a row is odd, or some bytes are."""
    path = folder / "s.db"
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    damage = damaged_bytes if random.random() < 0.3 else _damaged_value
    path.write_bytes(damage(random, sound.files))
    with contextlib.suppress(StorageError, InvalidInput):
        if random.random() < 0.8:
            with closing(Store(path, reading=True)) as store:
                random.choice(READERS)(store)
        else:
            _go_on(path)
        return True
    return False


def _show(store: Store) -> None:
    for entry in history(store, count=30, holds=True):
        entry.model_dump_json()
        entry.change()


READERS: tuple[Callable[[Store], object], ...] = (
    _show,
    lambda store: [window.model_dump_json() for window in windows(store, "a", 30)],
    lambda store: explain(store, 3),
    lambda store: events(store, count=20),
    all_orders,
)
"""What `tuner history`, `tuner explain` and the daemon's API do."""


def _damaged_value(random: Random, content: bytes) -> bytes:
    """Return a store of which a column has an odd value in all rows, if SQLite takes it."""
    values = (None, 0, -1, 2**62, 1e308, float("inf"), b"\xff\x00", *NUMBERS, *TEXTS)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.deserialize(
            content[:18] + ROLLBACK_JOURNAL + content[20:]
        )  # there is no write-ahead log in memory
        table = random.choice(TABLES)
        column = random.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
        (text,) = db.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone() or ("",)
        odd = damaged_text(random, text) if isinstance(text, str) and text else random.choice(values)
        with contextlib.suppress(sqlite3.Error, UnicodeEncodeError):
            db.execute(f"UPDATE {table} SET {column} = ?", (odd,))
        changed = db.serialize()
    return changed[:18] + content[18:20] + changed[20:]


def _go_on(path: Path) -> None:
    """What the daemon does."""
    with closing(Store(path)) as store:
        target = store.target("a", "sim://mlp", SPACE, configuration()).id
        loop = ControlLoop(SPACE, OBJECTIVE, ScriptedAgent())
        replay(store, target, loop, learned=0)
        recount(store, target, loop, 0.0, 2000.0)
        unfinished_change(store, target)
        unjudged_change(store, target)
        orders_of(store, "a")
        store.decided(target, record(APPLY, 99, outcome="recommended"), state(window=99), kept=True)
