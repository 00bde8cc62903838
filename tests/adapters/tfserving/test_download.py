"""Where the embedded server's TensorFlow comes from."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tuner.adapters.tfserving import download
from tuner.adapters.tfserving.download import python_path, require_platform
from tuner.adapters.tfserving.embedded import EmbeddedTFServing
from tuner.errors import AdapterError, InvalidInput, UnsupportedPlatform

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVETUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "find_spec", lambda _: None)


def pins(path: Path) -> dict[str, str]:
    lines = [line.split("==") for line in path.read_text().splitlines() if "==" in line]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in lines}


def test_both_lists_of_versions_agree() -> None:
    """What is fetched and what the extra installs under the constraints are the same versions."""
    fetched = pins(ROOT / "adapters" / "tfserving" / "standin" / "requirements.txt")
    tested = pins(ROOT / "constraints.txt")

    assert fetched["tensorflow-cpu"] == tested["tensorflow"]
    assert {name: tested[name] for name in fetched if name in tested} == {
        name: version for name, version in fetched.items() if name in tested
    }


def test_an_installed_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra nothing is fetched."""
    monkeypatch.setattr(download, "find_spec", lambda _: True)
    monkeypatch.setattr(download, "run_pip", lambda *_: pytest.fail("fetched"))

    assert str(ROOT) in python_path()


def test_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without resolving, into a folder of the cache, which comes first on the path."""
    calls = []
    monkeypatch.setattr(download, "run_pip", lambda options, _: calls.append(options))

    first, second = python_path(), python_path()

    assert first == second
    assert first.split(":")[0].endswith(f"python{sys.version_info.major}.{sys.version_info.minor}")
    assert len(calls) == 1
    assert {"--no-deps", "--target"} <= set(calls[0])


def test_what_cannot_be_fetched_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's own words, and the extra."""

    def fail(command: list[str], **_: object) -> NoReturn:
        raise subprocess.CalledProcessError(1, command, stderr="ERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", fail)

    with pytest.raises(AdapterError, match=r"no network.*\.\[tfserving\]"):
        python_path()


def test_platforms_that_it_is_not_fetched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is named, and the extra."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")

    with pytest.raises(UnsupportedPlatform, match=r"aarch64.*\.\[tfserving\]"):
        require_platform()


def test_unknown_model() -> None:
    """The models that there are stand in the message."""
    with pytest.raises(InvalidInput, match="cnn, mlp"):
        EmbeddedTFServing("bert")
