"""YAML files of settings: the message about a mistake names file, line and field."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from tuner.errors import InvalidInput, StorageError
from tuner.files.yaml_file import load_yaml


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    slo_ms: float = Field(strict=True, gt=0)
    size: int | tuple[int, ...] = 1

    @field_validator("name")
    @classmethod
    def _no_spaces(cls, name: str) -> str:
        if " " in name:
            raise ValueError("must be one word")
        return name


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    parts: tuple[Part, ...]
    limits: dict[str, float] = {}
    folder: str = ""

    @field_validator("folder")
    @classmethod
    def _found(cls, name: str, info: ValidationInfo) -> str:
        return str(info.context["folder"] / name) if info.context else name


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Settings]:
    """Write a file and load it."""

    def call(text: bytes | str) -> Settings:
        path = tmp_path / "cluster.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_yaml(path, Settings)

    return call


@pytest.fixture
def refuse(load: Callable[..., Settings], tmp_path: Path) -> Callable[..., str]:
    """Load a file that has mistakes and return what is said, without the folder."""

    def call(text: bytes | str) -> str:
        with pytest.raises(InvalidInput) as refusal:
            load(text)
        return str(refusal.value).replace(f"{tmp_path}/", "")

    return call


def test_a_file_becomes_the_model(load: Callable[..., Settings], tmp_path: Path) -> None:
    """Block and flow style, comments, numbers of YAML 1.2, and the folder for names of other files."""
    text = "parts:\n  - {name: on, slo_ms: 1e2}  # 1.1: true\n  - name: b\n    slo_ms: 5\n"

    settings = load(text + "limits: {010: 2}\nfolder: traces\n")

    assert [(part.name, part.slo_ms) for part in settings.parts] == [("on", 100.0), ("b", 5.0)]
    assert settings.limits == {"010": 2.0}
    assert settings.folder == str(tmp_path / "traces")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "parts:\n- name: a\n  size: 1\n  slo_ms: -5\n",
            "cluster.yaml line 4: parts[0].slo_ms: must be greater than 0, but got -5",
        ),
        ("\nparts:\n  - name: a\n", "cluster.yaml line 3: parts[0].slo_ms: is missing"),
        (
            "parts:\n  - {name: a,\n     slo: 3, slo_ms: 3}\n",
            "cluster.yaml line 3: parts[0].slo: there is no such field; did you mean 'slo_ms'?",
        ),
        ("parts: []\nxyz: 1\n", "line 2: xyz: there is no such field; use one of folder, limits, parts"),
        ("parts: [{name: a b, slo_ms: 3}]", "line 1: parts[0].name: must be one word"),
        ("parts: [{name: a, slo_ms: true}]", "parts[0].slo_ms: must be a valid number, but got true"),
        ("parts: [{name: a, slo_ms: 3, size: x}]", "line 1: parts[0].size: must be a valid integer"),
        ("parts: [3]", "line 1: parts[0]: must be a group of `field: value`, but got 3"),
        ("parts: 3", "line 1: parts: must be a list, but got 3"),
        (
            "parts: []\nlimits: {a: {b: 1}}",
            "line 2: limits.a: must be a valid number, but got a group of fields",
        ),
        ("- parts", "line 1: the file: must be a group of `field: value`, but got a list"),
        ("parts: []\nlimits:\n  a: 1\n  a: 2\n", "line 4: limits.a: is given twice, first in line 3"),
        ("parts: &x [1]\nlimits: *x\n", "line 2: limits: aliases (*x) are not supported"),
        ("parts: []\nfolder: 2001-99-99\n", "line 2: folder: month must be in 1..12"),
        ("parts: [\n  3\nx: 1", "line 3: is not valid YAML: expected ',' or ']'"),
        ("parts: []\n---\nparts: []\n", "is not valid YAML: but found another document"),
        (
            "parts: !!python/object:os.system x",
            "line 1: parts: the tag tag:yaml.org,2002:python/object:os.system is not supported; leave it out",
        ),
        ("parts: !!bool x", "line 1: parts: 'x' is not of the type of its tag"),
        ("parts: !!binary eA==", "line 1: parts: the tag tag:yaml.org,2002:binary is not supported"),
        ("parts: []\nlimits: !!set {a}", "line 2: limits: the tag tag:yaml.org,2002:set is not supported"),
        ("parts: 1" + "0" * 400, "line 1: parts: is larger than any number that can be used"),
        ("parts: 0o1" + "0" * 6000, "line 1: parts: is larger than any number that can be used"),
        ("parts: 1" + "0" * 6000, "line 1: parts: Exceeds the limit"),
        ('parts: []\nfolder: "a\\0b"', "line 2: folder: holds a character that no text has: 'a\\x00b'"),
        ('parts: []\nfolder: "a\\ud800b"', "line 2: folder: holds a character that no text has"),
        ('parts: "\\U99999999"', "line 1: is not valid YAML"),
        ("? [1]\n: 3\n", "line 1: the file: a key must be a word"),
        ("parts: \x01", "line 1: is not valid YAML: unacceptable character"),
        ("[" * 200, "line 1: is not valid YAML: maximum depth"),
        ("", "line 1: is empty"),
        (b"parts:\n\xff", "line 2: is not UTF-8 text"),
    ],
)
def test_a_mistake_is_told_with_line_and_field(
    refuse: Callable[..., str], text: bytes | str, said: str
) -> None:
    """The message begins with the file and the line, then the field as people write it."""
    message = refuse(text)

    assert said in message
    assert message.startswith("cluster.yaml line ")


def test_several_mistakes_are_told_at_once(refuse: Callable[..., str]) -> None:
    """Up to five, in the order of the file, then how many more."""
    text = "parts:\n" + "".join(f"- {{name: a, slo_ms: {-n}}}\n" for n in range(1, 8))

    said = refuse(text).splitlines()

    assert said[0] == "cluster.yaml: 7 mistakes"
    assert said[1] == "  line 2: parts[0].slo_ms: must be greater than 0, but got -1"
    assert said[5:] == ["  line 6: parts[4].slo_ms: must be greater than 0, but got -5", "  and 2 more"]


def test_a_bomb_is_not_unfolded(refuse: Callable[..., str]) -> None:
    """Nine lists of nine aliases of each other would be a billion values."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]

    assert "line 2: a1[0]: aliases (*a0)" in refuse("\n".join(lines))


def test_too_large_and_missing_files(load: Callable[..., Settings], tmp_path: Path) -> None:
    """The size is checked before anything is parsed; a missing file is named."""
    with pytest.raises(StorageError, match="larger than 10 MB"):
        load("#" * 10_000_001)
    with pytest.raises(StorageError, match=r"none\.yaml"):
        load_yaml(tmp_path / "none.yaml", Settings)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe without a writer, a device without end, and a name that no file can have."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device", "folder/..", "a\0b", "x" * 300):
        with pytest.raises(StorageError, match="cannot be read"):
            load_yaml(tmp_path / name, Settings)


def test_a_long_value_is_not_repeated_in_full(refuse: Callable[..., str]) -> None:
    """Not even by a check of our own: what is said stays short enough for a log."""
    assert len(refuse(f"parts: [{{name: a, slo_ms: 1, size: {'x' * 5000}}}]")) < 1200
    assert len(refuse("parts: []\n" + "y" * 5000 + ": 1")) < 1200
