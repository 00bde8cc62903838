"""Saving and loading policies: everything comes back, and nothing foreign gets in."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.agents.bed import HIGH, LOW, make_space, table
from tuner.agents import State
from tuner.agents.rrl import RRL
from tuner.agents.rrl.network.estimator import EstimatorParameters
from tuner.agents.rrl.table.parameters import TableParameters
from tuner.errors import InvalidInput, StorageError
from tuner.knobs import Knob, KnobSpace

SPACE = make_space()
PARAMETERS = TableParameters(estimator=EstimatorParameters(hidden=(8, 4), steps=3), delta=1.5, gamma=0.3)


@pytest.fixture
def agent() -> RRL:
    agent = RRL(SPACE, PARAMETERS, seed=2, synchronous=True)
    for window in range(12):
        state = State(level=(LOW, HIGH)[window % 2], configuration=window * 5)
        agent.update(state, window * 5, 0.5 + window / 10, state)
    return agent


@pytest.fixture
def saved(agent: RRL, tmp_path: Path) -> Path:
    agent.save(tmp_path / "policy")
    return tmp_path / "policy"


def rewrite(folder: Path, **changes: np.ndarray | None) -> None:
    """Change arrays of a saved policy, with a digest that fits."""
    path = next(folder.glob("arrays-*.npz"))
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays |= {name: array for name, array in changes.items() if array is not None}
    for name in [name for name, array in changes.items() if array is None]:
        del arrays[name]
    np.savez(path, **arrays)
    sign(folder, path.read_bytes())


def sign(folder: Path, data: bytes) -> None:
    manifest = json.loads((folder / "policy.json").read_text())
    (folder / manifest["arrays"]).write_bytes(data)
    manifest["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / "policy.json").write_text(json.dumps(manifest))


def test_everything_comes_back(agent: RRL, saved: Path) -> None:
    """Parameters, tables, estimates: the loaded agent thinks the same."""
    loaded = RRL.load(saved, SPACE, synchronous=True)

    assert loaded.parameters == PARAMETERS
    assert sorted(table(loaded).tables) == [LOW, HIGH]
    for level in (LOW, HIGH):
        np.testing.assert_array_equal(loaded.costs(level), agent.costs(level))
        np.testing.assert_array_equal(table(loaded).tables[level].q, table(agent).tables[level].q)
        state = State(level=level, configuration=0)
        np.testing.assert_array_equal(
            loaded.probabilities(state, SPACE.distinct), agent.probabilities(state, SPACE.distinct)
        )
    assert table(loaded).estimator.trained
    everything = np.arange(SPACE.size)
    assert (
        table(loaded).estimator.log_costs(HIGH, everything).tolist()
        == table(agent).estimator.log_costs(HIGH, everything).tolist()
    )


def test_loaded_agent_goes_on_learning(saved: Path) -> None:
    """Its arrays can be changed, its estimation function trained."""
    loaded = RRL.load(saved, SPACE, synchronous=True)
    state = State(level=LOW, configuration=3)

    loaded.update(state, 3, 0.1, state)

    assert loaded.costs(LOW)[3] < 0.2


def test_agent_that_knows_nothing_can_be_saved(tmp_path: Path) -> None:
    """Before its first window."""
    RRL(SPACE, PARAMETERS, synchronous=True).save(tmp_path)

    assert table(RRL.load(tmp_path, SPACE)).tables == {}


def test_saving_again_replaces(agent: RRL, saved: Path) -> None:
    """One manifest and one archive remain, no temporary files."""
    state = State(level=LOW, configuration=0)
    agent.update(state, 0, 9.0, state)

    agent.save(saved)

    assert len(list(saved.iterdir())) == 2
    assert RRL.load(saved, SPACE).costs(LOW)[0] == agent.costs(LOW)[0]


def test_saving_again_leaves_the_files_of_others(agent: RRL, saved: Path) -> None:
    """Who saves into a folder of his own may have arrays there, under names like ours."""
    other = saved / "arrays-of-mine.npz"
    other.write_bytes(b"mine")

    agent.save(saved)

    assert other.read_bytes() == b"mine"


def test_crash_before_the_manifest_keeps_the_old_policy(
    agent: RRL, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is renamed into place last."""
    before = RRL.load(saved, SPACE).costs(LOW)
    state = State(level=LOW, configuration=0)
    agent.update(state, 0, 9.0, state)
    replace = Path.replace

    def fail_on_manifest(self: Path, target: Path) -> Path:
        if target.name == "policy.json":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail_on_manifest)
    with pytest.raises(StorageError, match="No space left"):
        agent.save(saved)

    np.testing.assert_array_equal(RRL.load(saved, SPACE).costs(LOW), before)
    assert not [path for path in saved.iterdir() if path.name.startswith(".")]


def test_unwritable_folder(agent: RRL, tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match=r"cannot be written: .*; give another folder"):
        agent.save(tmp_path / "file" / "policy")


def test_missing_policy(tmp_path: Path) -> None:
    """The message says what would be one."""
    with pytest.raises(StorageError, match=r"policy\.json cannot be read: No such file.*`tuner train`"):
        RRL.load(tmp_path / "nowhere", SPACE)


@pytest.mark.parametrize(
    "text",
    ["", "not json", "[]", "{}", '{"format": "other"}', "\x00\xff", "[" * 100_000],
)
def test_foreign_manifest(saved: Path, text: str) -> None:
    """Whatever it is, one sentence."""
    (saved / "policy.json").write_bytes(text.encode("latin-1"))

    with pytest.raises(StorageError, match="is not a policy of this version"):
        RRL.load(saved, SPACE)


@pytest.mark.parametrize(
    ("field", "value"),
    [("version", 2), ("arrays", "../../etc/passwd"), ("knobs", []), ("surplus", 1), ("sha256", "0")],
)
def test_manifest_fields_are_checked(saved: Path, field: str, value: object) -> None:
    """A newer version, a path out of the folder, no knobs, unknown fields."""
    manifest = json.loads((saved / "policy.json").read_text()) | {field: value}
    (saved / "policy.json").write_text(json.dumps(manifest))

    with pytest.raises(StorageError, match="is not a policy of this version"):
        RRL.load(saved, SPACE)


@pytest.mark.parametrize("parameters", [{"delta": -1}, {"delta": "wide"}, {"estimator": {"hidden": []}}])
def test_parameters_are_checked(saved: Path, parameters: dict[str, object]) -> None:
    """They are validated like those of a caller."""
    manifest = json.loads((saved / "policy.json").read_text())
    manifest["parameters"] |= parameters
    (saved / "policy.json").write_text(json.dumps(manifest))

    with pytest.raises(StorageError, match="parameters are not valid"):
        RRL.load(saved, SPACE)


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_truncated_archive(saved: Path, keep: int) -> None:
    """Its digest gives it away."""
    path = next(saved.glob("arrays-*.npz"))
    path.write_bytes(path.read_bytes()[:keep])

    with pytest.raises(StorageError, match="damaged; train it again"):
        RRL.load(saved, SPACE)


def test_missing_archive(saved: Path) -> None:
    """A copied manifest alone is no policy."""
    next(saved.glob("arrays-*.npz")).unlink()

    with pytest.raises(StorageError, match="cannot be read: No such file"):
        RRL.load(saved, SPACE)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 rubbish", b"rubbish"])
def test_archive_of_something_else(saved: Path, data: bytes) -> None:
    """Even with a digest that fits."""
    sign(saved, data)

    with pytest.raises(StorageError, match="is not an archive of arrays"):
        RRL.load(saved, SPACE)


def test_pickled_objects_are_never_loaded(saved: Path) -> None:
    """An array of objects would run code when it is unpickled."""
    rewrite(saved, q=np.array([{"a": 1}], dtype=object))

    with pytest.raises(StorageError, match="is not an archive of arrays"):
        RRL.load(saved, SPACE)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("q", None),
        ("q", np.zeros((2, 3))),
        ("q", np.zeros((2, SPACE.size), dtype=np.int64)),
        ("q", np.full((2, SPACE.size), np.nan)),
        ("cost", np.full((2, SPACE.size), np.inf)),
        ("cost", np.full((2, SPACE.size), np.nan)),
        ("evidence", np.full((2, SPACE.size), -1.0)),
        ("visits", np.full((2, SPACE.size), -1)),
        ("levels", np.array([7, 7])),
        ("levels", np.array([[7, 8]])),
        ("windows", np.array([1])),
        ("samples", np.array([[20.0, SPACE.size, 1.0]])),
        ("samples", np.array([[20.0, np.nan, 1.0]])),
        ("weight_0", np.zeros((4, 9), dtype=np.float32)),
        ("weight_1", np.full(8, np.nan, dtype=np.float32)),
        ("weight_5", None),
    ],
)
def test_shapes_and_values_are_checked(saved: Path, name: str, array: np.ndarray | None) -> None:
    """Missing arrays, wrong shapes and types, values that are not finite or out of range."""
    rewrite(saved, **{name: array})

    with pytest.raises(StorageError, match=r"policy .*(missing|wrong|out of range)"):
        RRL.load(saved, SPACE)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        (
            [SPACE.knobs[0], SPACE.knobs[1]],
            "knob instances: was learned with, but is not there; use .*policy",
        ),
        (
            [*SPACE.knobs, Knob(name="threads", grid=(1,), default=1)],
            "knob threads: not among what was learned: max_batch_size",
        ),
        (
            [SPACE.knobs[0], SPACE.knobs[1], Knob(name="instances", grid=(1, 2, 3), default=1)],
            "knob instances: the grid is 1,2,3 but was 1,2 in learning",
        ),
        (
            [SPACE.knobs[0], Knob(name="max_queue_delay", grid=(0,), default=0)],
            "knob max_queue_delay: the grid is 0ms but .*; knob instances: was learned with",
        ),
        ([SPACE.knobs[1], SPACE.knobs[0], SPACE.knobs[2]], "order"),
    ],
)
def test_other_knobs_are_named(saved: Path, knobs: list[Knob], message: str) -> None:
    """A policy is about its knobs and grids; all that differ are named."""
    with pytest.raises(InvalidInput, match=message):
        RRL.load(saved, KnobSpace(knobs))


@pytest.mark.parametrize("grid", [[1, 2, 4], range(1, 5)], ids=repr)
def test_a_grid_is_the_same_however_it_is_written(grid: Any, tmp_path: Path) -> None:
    """A policy comes back for the very knobs that it was saved with, also where their grid is no tuple."""
    space = KnobSpace([Knob(name="threads", grid=grid, default=1)])
    RRL(space).save(tmp_path)

    assert RRL.load(tmp_path, space).costs(0).size == space.size


def test_default_of_a_knob_may_differ(saved: Path) -> None:
    """It is the server's, not the policy's."""
    knobs = [SPACE.knobs[0], SPACE.knobs[1], Knob(name="instances", grid=(1, 2), default=2)]

    assert table(RRL.load(saved, KnobSpace(knobs))).tables
