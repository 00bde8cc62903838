"""Fetching the server, and the platforms that can run it."""

from __future__ import annotations

import ctypes.util
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from tuner.adapters.embedded.cache import cache_folder
from tuner.adapters.triton.embedded import download
from tuner.adapters.triton.embedded.download import fetch_triton, require_platform
from tuner.errors import AdapterError, UnsupportedPlatform


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVETUNE_CACHE", str(tmp_path / "cache"))


def test_pip_cannot_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's own words are passed on, and nothing is left behind."""

    def fail(command: list[str], **_: object) -> NoReturn:
        raise subprocess.CalledProcessError(1, command, stderr="x\nERROR: No matching distribution\n")

    monkeypatch.setattr(subprocess, "run", fail)

    with pytest.raises(AdapterError, match=r"nvidia-pytriton==0\.7\.0: ERROR: No matching distribution"):
        fetch_triton()

    assert [path.suffix for path in cache_folder().iterdir()] == [".lock"]


def test_another_file_than_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel whose hash differs is not unpacked."""

    def forge(command: list[str], **_: object) -> None:
        (Path(command[command.index("--dest") + 1]) / "nvidia.whl").write_bytes(b"something else")

    monkeypatch.setattr(subprocess, "run", forge)

    with pytest.raises(AdapterError, match="not the file expected"):
        fetch_triton()


@pytest.mark.parametrize(
    ("module", "attribute", "value", "words"),
    [
        (platform, "system", "Darwin", "Linux on x86-64"),
        (platform, "machine", "aarch64", "Linux on x86-64"),
        (sys, "version_info", (3, 14), r"3\.8 to 3\.13"),
        (platform, "libc_ver", ("glibc", "2.31"), r"2\.35.*2\.31"),
        (platform, "libc_ver", ("", ""), r"2\.35"),
    ],
)
def test_platforms_that_cannot_run_it(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    attribute: str,
    value: str | tuple[int | str, int | str],
    words: str,
) -> None:
    """One sentence says what is missing."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(module, attribute, value if module is sys else lambda: value)

    with pytest.raises(UnsupportedPlatform, match=words):
        require_platform()


def test_python_without_shared_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's backend needs libpython."""
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: None)
    monkeypatch.setattr(sys, "base_prefix", "/nowhere")
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)

    with pytest.raises(UnsupportedPlatform, match="libpython"):
        download.python_library_folder()
