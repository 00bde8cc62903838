"""The page on adapters, and the package that it walks through, are true: it is installed and used."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import Run
from tests.docs.page import ROOT, blocks, run_commands
from tuner.adapters import Counters, Description, registry

PAGE = ROOT / "docs" / "adapters.md"
EXAMPLE = ROOT / "docs" / "examples" / "kettle"
ADDRESS = "127.0.0.1:7301"
pytestmark = pytest.mark.xdist_group("kettle")  # it is installed once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example is installed, as a user would, but from nowhere else than this disk."""
    folder = tmp_path_factory.mktemp("kettle")
    shutil.copytree(EXAMPLE, folder / "source")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    pip = [sys.executable, "-W", "ignore", "-m", "pip", "install", *options]
    subprocess.run([*pip, "--target", folder / "site", folder / "source"], check=True)
    return folder / "site"


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example is installed for this process, and for those that it starts."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    registry._adapters.cache_clear()
    yield
    registry._adapters.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "kettle"]:
        del sys.modules[name]


@pytest.mark.usefixtures("installed")
def test_it_passes_the_contracts() -> None:
    """Its own tests, in a process of their own, as its author runs them."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE)]

    ended = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-1000:]


@pytest.mark.slow
@pytest.mark.usefixtures("installed", "one_core")
def test_commands_of_the_page_run(run: Run) -> None:
    """Every command, in order, against a running server, with shorter windows."""
    from kettle.server import serve

    server, port, _ = serve()
    try:
        run_commands(run, PAGE, [(ADDRESS, f"127.0.0.1:{port}"), ("--windows 12", "--windows 2 --window 1s")])
    finally:
        server.stop(0)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("command", "name"), [("observe", "kettle://"), ("train", "corners")])
def test_help_lists_what_is_installed(command: str, name: str) -> None:
    """Schemes of targets, and agents."""
    said = subprocess.run(
        [sys.executable, "-m", "tuner", command, "--help"], capture_output=True, text=True, check=True
    )

    assert name in said.stdout


@pytest.mark.usefixtures("installed")
def test_errors_list_what_is_installed(run: Run) -> None:
    """Likewise."""
    assert "kettlesim://" in run("observe", "nope://x").err
    assert "corners" in run("compare", "--agents", "nobody").err


def test_an_adapter_that_cannot_be_imported(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence says whose fault that is."""
    folder = tmp_path / "broken-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[tuner.backends]\nbroken = nowhere_to_be_found:connect\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry._adapters.cache_clear()

    ended = run("observe", "broken://x")

    registry._adapters.cache_clear()
    assert ended.code == 2
    assert "TARGET: 'broken' needs nowhere_to_be_found:connect of the package broken" in ended.err


@pytest.mark.parametrize("kind", [Counters, Description])
def test_the_page_lists_every_field(kind: type) -> None:
    """In a table of its own, and no other."""
    section = PAGE.read_text().split(f"`{kind.__name__}`\n")[1].split("\n#")[0]
    listed = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)

    assert listed == [field.name for field in dataclasses.fields(kind)]


def test_the_example_is_installed_where_the_tuner_is() -> None:
    """By pipx and by uv, too, in whose environments plain `pip` puts nothing."""
    said = blocks(PAGE, "text")[0]

    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    folder = f"./{EXAMPLE.relative_to(ROOT)}"
    for command in (
        f"pipx inject {ours} {folder}",
        f"uv tool install . --with {folder}",
        f"pip install {folder}",
    ):
        assert f"{command} " in said


def test_the_adapter_is_short() -> None:
    """The page says so: sixty lines for the class."""
    tree = ast.parse((EXAMPLE / "kettle" / "adapter.py").read_text())
    lines = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for line in range(node.lineno + 2, (node.end_lineno or 0) + 1)
    }
    text = (EXAMPLE / "kettle" / "adapter.py").read_text().splitlines()

    assert len([line for line in lines if text[line - 1].strip()]) <= 60
