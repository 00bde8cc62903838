"""Virtual environments of programs that are compared with ours."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner.errors import AdapterError
from tuner.experiments.frame import virtualenv
from tuner.experiments.frame.virtualenv import virtualenv_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("SERVETUNE_CACHE", str(tmp_path))
    return tmp_path


def test_a_virtual_environment_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the packages asked for, and a Python that runs from where the folder ends up."""
    installed: list[Sequence[str]] = []
    monkeypatch.setattr(virtualenv, "run_pip", lambda arguments, _what: installed.append(arguments))

    folder = virtualenv_of("Some Server", ("one==1", "two==2"))

    assert virtualenv_of("Some Server", ("one==1", "two==2")) == folder
    assert [list(arguments)[-2:] for arguments in installed] == [["one==1", "two==2"]]
    shown = subprocess.run(
        [str(folder / "bin" / "python"), "-c", "import sys; print(sys.prefix)"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip() == str(folder)


def test_other_packages_are_another_virtual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a new version is not looked for in an old folder."""
    monkeypatch.setattr(virtualenv, "run_pip", lambda _arguments, _what: None)

    assert virtualenv_of("it", ("one==1",)) != virtualenv_of("it", ("one==2",))


def test_what_cannot_be_installed_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the error says what it was."""

    def fail(_arguments: Sequence[str], what: str) -> None:
        raise AdapterError(f"pip cannot download {what}")

    monkeypatch.setattr(virtualenv, "run_pip", fail)

    with pytest.raises(AdapterError, match="download it"):
        virtualenv_of("it", ("one==1",))
    assert not [path for path in cache.iterdir() if path.is_dir()]
