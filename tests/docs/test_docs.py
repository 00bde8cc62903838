"""The documentation is true: its commands run, its links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from pydantic import TypeAdapter

from tuner.adapters.triton.embedded import EmbeddedTriton

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LIVE = "triton://127.0.0.1:8001/mlp?metrics=8002"


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code blocks of a page in a language, in order."""
    return [
        t.content for t in MarkdownIt().parse(page.read_text()) if t.type == "fence" and t.info == language
    ]


def commands(page: Path) -> list[str]:
    """The tuner commands of a page's sh blocks."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.startswith("tuner ")]


def run_all(page: Path, folder: Path, replace: Sequence[tuple[str, str]] = ()) -> None:
    """Run a page's commands one after the other in one folder, as a reader would."""
    for command in commands(page):
        here = command
        for old, new in replace:
            here = here.replace(old, new)
        here, _, target = here.partition(" > ")
        arguments = [sys.executable, "-m", *shlex.split(here)]
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
        if target:
            (folder / target).write_text(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_commands_of_the_training_page_run(tmp_path: Path) -> None:
    """Every command of docs/train.md, in order, over the simulated server."""
    run_all(ROOT / "docs" / "train.md", tmp_path)


def test_code_of_the_environments_page_runs(tmp_path: Path) -> None:
    """The Python blocks of docs/environments.md, one after the other, as a reader would try them."""
    program = "\n".join(blocks(ROOT / "docs" / "environments.md", "python"))

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "request_parallelism" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_commands_of_the_agents_page_run(tmp_path: Path) -> None:
    """Every command of docs/agents.md, in order."""
    run_all(ROOT / "docs" / "agents.md", tmp_path)


def test_agents_page_names_every_agent() -> None:
    """With the constants' defaults that it quotes still being so."""
    from tuner.agents.catalogue import AGENTS
    from tuner.agents.rivals.capes import CapesParameters
    from tuner.agents.rivals.deeprm import DeepRMParameters
    from tuner.agents.rivals.gp import GpParameters
    from tuner.agents.rivals.hill_climb import HillClimbParameters
    from tuner.agents.rrl.parameters import RRLParameters

    lines = _lines("agents.md")
    first = lines[: lines.index("## The constants of RRL")]
    rows = {line.split("|")[1].strip(" `"): line for line in first if line.startswith("| `")}
    constants = {
        "rrl": RRLParameters(),
        "capes": CapesParameters(),
        "deeprm": DeepRMParameters(),
        "hill_climb": HillClimbParameters(),
        "gp": GpParameters(),
    }

    assert list(rows) == list(AGENTS)
    for name, parameters in constants.items():
        for field, value in re.findall(r"`(\w+)` ([\d.]+)", rows[name]):
            assert getattr(parameters, field) == float(value), (name, field)


def test_agents_page_tells_the_constants_of_rrl() -> None:
    """Every value in its tables is that of the form named above it."""
    from tuner.agents.rrl.forms import form

    words = {"none": None, "true": True, "false": False}
    lines = _lines("agents.md")
    begin = lines.index("## The constants of RRL")
    tables = [line.replace("`", "") for line in lines[begin:] if line.startswith("| ")]
    forms, checked = [], 0
    for line in tables:
        name, _, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if name == "constant":
            forms = cells
            continue
        for preset, cell in zip(forms, cells, strict=True):
            parameters = form(preset)
            value = TypeAdapter(type(parameters)).dump_python(parameters, mode="json")
            for part in name.split("."):
                value = value.get(part)  # a form lacks the constants of the other
            text = words[cell] if cell in words else cell if cell.isalpha() else json.loads(cell or "null")
            assert cell == "" or value == text, (preset, name)
            checked += 1
    assert checked > 40


def _lines(page: str) -> list[str]:
    return (ROOT / "docs" / page).read_text().splitlines()


@pytest.mark.compiled
def test_commands_of_the_workloads_page_run(tmp_path: Path) -> None:
    """Every command of docs/workloads.md, with short traces in place of the public ones."""
    seconds = "".join(f"2023-11-16 18:17:{second:02d}.5,100,10\n" for second in range(60))
    for name in ("conv", "code"):
        trace = tmp_path / f"AzureLLMInferenceTrace_{name}.csv"
        trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{seconds}")

    run_all(ROOT / "docs" / "workloads.md", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_commands_of_the_daemon_page_run(tmp_path: Path) -> None:
    """Every command of docs/daemon.md, in order, on the file that it shows."""
    page = ROOT / "docs" / "daemon.md"
    (tmp_path / "servetune.yaml").write_text(blocks(page, "yaml")[0])

    run_all(page, tmp_path)


@pytest.mark.triton
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", ["README.md", "docs/attach.md"])
def test_commands_of_the_live_pages_run(tmp_path: Path, embedded: EmbeddedTriton, page: str) -> None:
    """Every command of the page, in order, against a real server, whoever else uses the machine."""
    run_all(ROOT / page, tmp_path, [(LIVE, embedded.target)])


@pytest.mark.tfserving
@pytest.mark.timeout(400)
def test_commands_of_the_tfserving_page_run(tmp_path: Path) -> None:
    """Every command of docs/tfserving.md but the demo, in order, against a server."""
    from tuner.adapters.tfserving.embedded import EmbeddedTFServing

    with EmbeddedTFServing() as server:
        watched = server.target.partition("&")[0]
        tuned = "tfserving://127.0.0.1:8500/mlp?rest=8501&base_path=/models/mlp"
        replace = [(tuned, server.target), ("tfserving://127.0.0.1:8500/mlp?rest=8501", watched)]
        run_all(
            ROOT / "docs" / "tfserving.md", tmp_path, [*replace, ("demo --server tfserving", "--version")]
        )


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_run(page: Path) -> None:
    """Every python block runs as it stands."""
    for block in blocks(page, "python"):
        subprocess.run([sys.executable, "-c", block], check=True, timeout=120)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links name files that exist."""
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_quoted_exist(page: Path) -> None:
    """Every `tuner NAME` in prose names a command."""
    from tuner.__main__ import app

    known = {c.callback.__name__ for c in app.registered_commands if c.callback} | {
        g.name for g in app.registered_groups
    }
    for name in re.findall(r"`tuner ([a-z]+)", page.read_text()):
        assert name in known, name
