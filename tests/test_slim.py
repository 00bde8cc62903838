"""Without any extra the package observes, recommends, runs and reports; what needs an extra names it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tuner.plugin import EXTRAS

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs" / "examples" / "kettle"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ABSENT = {*EXTRAS} - {"opentelemetry"} | {"opentelemetry.sdk", "opentelemetry.exporter"}
"""Packages that only extras bring. OpenTelemetry's API alone comes with FastAPI."""
PAGE = (ROOT / "docs" / "compatibility.md").read_text()
HEAVY = {"scipy", "gymnasium", "fastapi", "uvicorn", "jinja2", "yaml", "tensorflow", "tensorflow_serving"}
"""Packages that take long to import, beside those of the extras, and that watching a server does not need."""


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run commands where no package of an extra can be imported; the example of an adapter is installed."""
    folder = tmp_path_factory.mktemp("slim")
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules |= dict.fromkeys({[*ABSENT]})\n")
    entries = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = folder / "kettle-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kettle\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in ones.items())
            for group, ones in entries.items()
        )
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [folder, EXAMPLE, ROOT]))}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tuner", *words]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.parametrize(
    "command",
    [
        "observe kettlesim://tea?rate=40 --count 1",
        "recommend kettlesim://tea?rate=40 --slo p95=200ms --windows 1",
        "run kettlesim://tea --slo p95=200ms --rate 40 --windows 2 --window 5s --out {folder}",
    ],
)
def test_without_extras(
    slim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, command: str
) -> None:
    """A server is observed, advised on and tuned; the report says why it has no figures."""
    folder = tmp_path / "found"

    ended = slim(*command.format(folder=folder).split())

    assert ended.returncode == 0, ended.stderr
    assert not folder.exists() or ".[lab]" in (folder / "report.html").read_text()


def test_the_daemon_without_extras(
    slim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """It tunes a target, and listens on its port."""
    target = "{name: tea, url: 'kettlesim://tea?rate=40', slo: p95=200ms, mode: apply, window: 5s}"
    file = tmp_path / "kept.yaml"
    file.write_text(f"state: kept.db\nhttp: {{listen: '127.0.0.1:0'}}\ntargets: [{target}]\n")

    ended = slim("daemon", str(file), "--fast", "--windows", "2")

    assert ended.returncode == 0, ended.stderr
    assert "listens at http://127.0.0.1:" in ended.stdout
    assert re.search(r"tea: apply tile=\d+ workers=\d+: applied", ended.stdout), ended.stdout


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("train --agent capes --rate 100 --windows 2 --out policy", "numba", "sim"),
        ("observe sim://mlp --count 1", "numba", "sim"),
        (f"simulate {ROOT}/docs/examples/cluster.yaml", "numba", "sim"),
    ],
)
def test_what_needs_an_extra_names_it(
    slim: Callable[..., subprocess.CompletedProcess[str]], command: str, package: str, extra: str
) -> None:
    """In one sentence, with a command that can work: PyPI does not have us."""
    ended = slim(*command.split())

    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ")
    said = f"needs {package}, which is not installed; in a clone: pipx install --force '.[{extra}]', or pip"
    assert said in ended.stderr


def test_extras_hold_what_the_base_does_not() -> None:
    """Each package is in the extra that its sentence names, and not among the dependencies."""
    extras = PROJECT["optional-dependencies"]

    for package, extra in EXTRAS.items():
        name = canonicalize_name(package)
        assert any(line.startswith(name) for line in extras[extra]), package
        assert not any(line.startswith(name) for line in PROJECT["dependencies"]), package


def test_an_installation_is_no_larger_than_the_page_says() -> None:
    """The files of what the base needs, and of what `sim` adds; nothing of CUDA is among them."""
    base = installed(PROJECT["dependencies"])
    container = installed(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["sim"])

    said = re.search(
        r"^\| no extra, .*\| (\d+) MB: .*^\| the extra `sim`, .*\| (\d+) MB more",
        PAGE,
        re.DOTALL | re.MULTILINE,
    )
    assert said is not None
    sizes = {package: round(size / 1e6) for package, size in container.items() if size > 1e6}
    assert sum(base.values()) / 1e6 <= 1.03 * int(said[1]), sizes
    assert (sum(container.values()) - sum(base.values())) / 1e6 <= 1.03 * int(said[2]), sizes
    assert not [name for name in container if re.match(r"torch|triton$|nvidia-(?!ml-py)", name)]


def installed(requirements: list[str]) -> dict[str, int]:
    """The size of each package that is needed, in bytes, without bytecode."""
    wanted, found = [Requirement(line) for line in requirements], dict[str, int]()
    while wanted:
        package = wanted.pop()
        if package.name.lower() in found:
            continue
        there = distribution(package.name)
        places = [Path(str(file.locate())) for file in there.files or ()]
        found[package.name.lower()] = sum(
            p.stat().st_size for p in places if p.suffix != ".pyc" and p.is_file()
        )
        extras = package.extras or {""}
        needs = map(Requirement, there.requires or ())
        wanted += [
            n for n in needs if n.marker is None or any(n.marker.evaluate({"extra": e}) for e in extras)
        ]
    return found


def test_observe_starts_with_what_it_needs() -> None:
    """Up to the first question to a server, which refuses the connection, nothing heavy is imported."""
    command = [sys.executable, "-X", "importtime", "-m", "tuner", "observe", "triton://127.0.0.1:1/x"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    imported = {
        name.partition(".")[0] for name in re.findall(r"^import time:.*\| +(\S+)$", ended.stderr, re.M)
    }
    assert "Connection refused" in ended.stderr
    assert {"grpc", "numpy", "tuner"} <= imported
    assert not imported & (ABSENT | HEAVY)
