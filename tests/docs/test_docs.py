"""The documentation is true: its commands run, its links lead somewhere."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram
from pydantic import TypeAdapter

from tests.command_line import Run
from tests.docs.page import PAGES, ROOT, blocks, run_commands
from tuner.adapters.tfserving.embedded import EmbeddedTFServing
from tuner.adapters.triton.embedded import EmbeddedTriton

TRITON = "triton://127.0.0.1:8001/mlp?metrics=8002"
TFSERVING = "tfserving://127.0.0.1:8500/mlp?rest=8501"
FEWER = [
    ("--windows 5 --window 4s", "--windows 1 --window 2s"),
    ("--windows 4 --window 2s", "--windows 2 --window 1s"),
    ("--windows 3", "--windows 1"),
]
"""A live window takes as long as it says, and the commands do the same in each."""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("one_core")
def test_commands_of_the_training_page_run(run: Run) -> None:
    """Every command of docs/train.md, in order, over the simulated server."""
    run_commands(run, ROOT / "docs" / "train.md")


def test_code_of_the_environments_page_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Python blocks of docs/environments.md, one after the other, as a reader would try them."""
    monkeypatch.chdir(tmp_path)
    program = "\n".join(blocks(ROOT / "docs" / "environments.md", "python"))

    exec(program, {"__name__": "__main__"})

    assert "request_parallelism" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("one_core")
def test_commands_of_the_agents_page_run(run: Run) -> None:
    """Every command of docs/agents.md, in order."""
    run_commands(run, ROOT / "docs" / "agents.md")


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
    end = next(i for i in range(begin + 1, len(lines)) if lines[i].startswith("## "))
    tables = [line.replace("`", "") for line in lines[begin:end] if line.startswith("| ")]
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


def test_the_dispatchers_page_names_its_metrics() -> None:
    """With their labels; those of the process itself and of its version aside."""
    from tuner.dispatch.metrics import Metrics

    metrics = [one for one in vars(Metrics()).values() if isinstance(one, Counter | Gauge | Histogram)]
    page = _lines("dispatch.md")

    assert metrics
    for metric in metrics:
        (family,) = metric.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        (row,) = [line for line in page if line.startswith("| `servetune_d") and f"`{name}`" in line]
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        assert f" | {labels} | " in row


def _lines(page: str) -> list[str]:
    return (ROOT / "docs" / page).read_text().splitlines()


@pytest.mark.compiled
def test_commands_of_the_workloads_page_run(run: Run, tmp_path: Path) -> None:
    """Every command of docs/workloads.md, with short traces in place of the public ones."""
    seconds = "".join(f"2023-11-16 18:17:{second:02d}.5,100,10\n" for second in range(60))
    for name in ("conv", "code"):
        trace = tmp_path / f"AzureLLMInferenceTrace_{name}.csv"
        trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{seconds}")

    run_commands(run, ROOT / "docs" / "workloads.md")


@pytest.mark.slow
def test_commands_of_the_daemon_page_run(run: Run, tmp_path: Path) -> None:
    """Every command of docs/daemon.md, in order, on the file that it shows."""
    page = ROOT / "docs" / "daemon.md"
    (tmp_path / "servetune.yaml").write_text(blocks(page, "yaml")[0])

    run_commands(run, page)


def test_the_daemon_page_shows_how_a_mistake_in_the_example_is_told(run: Run, tmp_path: Path) -> None:
    """With the line of the file that the command above it writes."""
    mistaken = run("config", "example").out.replace("slo: p95=30ms", "slo: fast", 1)
    (tmp_path / "example.yaml").write_text(mistaken)

    done = run("config", "check", "example.yaml")

    assert done.code == 2
    assert done.err in blocks(ROOT / "docs" / "daemon.md", "text")


@pytest.mark.slow
def test_commands_of_the_tutorial_run(run: Run, tmp_path: Path) -> None:
    """Every command of docs/tutorial.md, in order, on the file that it shows."""
    page = ROOT / "docs" / "tutorial.md"
    (tmp_path / "servetune.yaml").write_text(blocks(page, "yaml")[0])

    run_commands(run, page)


@pytest.mark.alone
@pytest.mark.triton
@pytest.mark.parametrize("page", ["README.md", "docs/attach.md"])
def test_commands_of_the_live_pages_run(run: Run, embedded: EmbeddedTriton, page: str) -> None:
    """Every command of the page, in order, against a real server, whoever else uses the machine."""
    run_commands(run, ROOT / page, [(TRITON, embedded.target), *FEWER])


@pytest.mark.alone
@pytest.mark.tfserving
def test_commands_of_the_tfserving_page_run(run: Run, tfserving: EmbeddedTFServing) -> None:
    """Every command of docs/tfserving.md but the demo, in order, against a server."""
    tuned = tfserving.target
    targets = [(f"{TFSERVING}&base_path=/models/mlp", tuned), (TFSERVING, tuned.partition("&")[0])]

    run_commands(
        run, ROOT / "docs" / "tfserving.md", [*targets, *FEWER, ("demo --server tfserving", "--version")]
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: Path) -> None:
    """Every python block runs as it stands; one that imports the policy of docs/simulate.md, beside it."""
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    if page.name == "simulate.md":
        (tmp_path / "fifo_policy.py").write_text(found[0])
        monkeypatch.syspath_prepend(tmp_path)
    for block in found:
        exec(block, {"__name__": "__main__"})
    sys.modules.pop("fifo_policy", None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links name files that exist."""
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_quoted_exist(page: Path) -> None:
    """Every `tuner NAME` in prose names a command."""
    from tuner.command import app

    known = {c.callback.__name__ for c in app.registered_commands if c.callback} | {
        g.name for g in app.registered_groups
    }
    for name in re.findall(r"`tuner ([a-z]+)", page.read_text()):
        assert name in known, name
