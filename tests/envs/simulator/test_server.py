"""Tests of the description of a simulated server and its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.envs.simulator.server import ServerModel
from tuner.errors import InvalidInput, StorageError


def test_table_is_interpolated_and_never_falls() -> None:
    """Between entries l(b) is linear, beyond the last it goes on with the last slope."""
    server = ServerModel(table={1: 1.0, 3: 2.0, 5: 1.5, 7: 3.5})

    assert server.profile_table(9)[1:].tolist() == [1.0, 1.5, 2.0, 2.0, 2.0, 2.5, 3.5, 4.5, 5.5]


def test_without_a_table_executions_follow_a_line() -> None:
    """Then alpha and beta say how long they take."""
    server = ServerModel(table={}, alpha=0.001, beta=0.004)

    assert server.profile_table(3)[1:] == pytest.approx([0.005, 0.006, 0.007])


def test_file_round_trip(tmp_path: Path) -> None:
    """What is saved is read back the same."""
    server = ServerModel(name="cnn", table={1: 0.01, 8: 0.04}, cores=8, noise=0.3)
    server.save(tmp_path / "server.json")

    assert ServerModel.load(tmp_path / "server.json") == server


def test_default_fields_may_be_left_out() -> None:
    """A file gives only what differs."""
    assert ServerModel.from_json({"cores": 4}) == ServerModel(cores=4)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"cores": 0}, "cores"),
        ({"noise": -1}, "noise"),
        ({"cores": "many"}, "cores"),
        ({"colour": 1}, "colour"),
        ({"table": {"one": 1}}, "table"),
        ({"table": {"1": -1}}, "table"),
        ({"table": {}}, "table"),
    ],
)
def test_bad_field(values: dict[str, object], named: str) -> None:
    """A bad field is named, with the file."""
    with pytest.raises(InvalidInput, match=named) as caught:
        ServerModel.from_json(values, "server.json")

    assert "server.json" in str(caught.value)


@pytest.mark.parametrize("content", [None, "no json", "[1]"])
def test_bad_file(tmp_path: Path, content: str | None) -> None:
    """A missing or foreign file is the caller's mistake."""
    path = tmp_path / "server.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(InvalidInput, match="server"):
        ServerModel.load(path)


def test_unwritable_file(tmp_path: Path) -> None:
    """A file that cannot be written is a failure of the storage."""
    with pytest.raises(StorageError, match="cannot write"):
        ServerModel().save(tmp_path / "missing" / "server.json")


def test_slower_with_larger_batches_but_cheaper_per_request() -> None:
    """The default model gains from batching up to 8."""
    table = ServerModel().profile_table(32)[1:]

    assert np.all(np.diff(table) >= 0)
    assert table[7] / 8 < table[0] / 4
