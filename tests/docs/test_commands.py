"""Every command that the documentation shows is run by a test; those of planning and dispatching are here."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from tests.adapters.dispatch.running import Running, target_of
from tests.command_line import Run
from tests.dispatch.calls import poisson
from tests.dispatch.clock import run as in_virtual_time
from tests.dispatch.fakes import bench
from tests.docs.page import PAGES, ROOT, blocks, commands, run_commands, shell_lines
from tests.planning.prefix.networks import onnx_variant
from tuner.dispatch.process import DispatchProcess

DOCS = "tests.docs.test_docs.test_commands_of_the"
HERE = f"{__name__}.test_commands_of_the"
RUN_BY = {
    "README.md": f"{DOCS}_live_pages_run",
    "docs/adapters.md": "tests.docs.test_adapters.test_commands_of_the_page_run",
    "docs/agents.md": f"{DOCS}_agents_page_run",
    "docs/attach.md": f"{DOCS}_live_pages_run",
    "docs/daemon.md": f"{DOCS}_daemon_page_run",
    "docs/dispatch.md": f"{HERE}_dispatch_page_run",
    "docs/mixed-instances.md": f"{HERE}_planning_pages_run",
    "docs/plan-cluster.md": f"{HERE}_planning_pages_run",
    "docs/plan-instances.md": f"{HERE}_planning_pages_run",
    "docs/plan-partition.md": f"{HERE}_planning_pages_run",
    "docs/plan-prefix.md": f"{HERE}_planning_pages_run",
    "docs/plan-query.md": f"{HERE}_planning_pages_run",
    "docs/plan-replay.md": f"{HERE}_planning_pages_run",
    "docs/simulate.md": "tests.cli.test_simulate.test_commands_of_the_page_run",
    "docs/tfserving.md": f"{DOCS}_tfserving_page_run",
    "docs/train.md": f"{DOCS}_training_page_run",
    "docs/tutorial.md": f"{DOCS}_tutorial_run",
    "docs/workloads.md": f"{DOCS}_workloads_page_run",
}
"""Page with commands -> the test that runs them all."""
EXPLAINED = 1234
"""The number of the request that docs/dispatch.md asks about."""


def test_a_test_runs_the_commands_of_every_page() -> None:
    """It is there, and names the page."""
    assert [page.relative_to(ROOT).as_posix() for page in PAGES if commands(page)] == list(RUN_BY)

    for page, place in RUN_BY.items():
        module, _, name = place.rpartition(".")
        test = getattr(import_module(module), name)
        source = inspect.getsource(test) + inspect.getsource(inspect.getmodule(test))  # type: ignore[arg-type]
        assert "run_commands(" in inspect.getsource(test)
        assert Path(page).name in source, page


def test_what_is_no_command_of_ours_is_one_of_make_or_the_installation() -> None:
    """Those of make are the project's own targets, which CI runs."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    for page in PAGES:
        for line in shell_lines(page):
            word, *rest = line.split()
            assert (
                word == "tuner"
                or (word == "make" and rest[0] in targets)
                or line.startswith("pipx install .")
            ), (page.name, line)


@pytest.mark.slow
@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize(
    "page",
    [
        *(page for page in RUN_BY if "/plan-" in page),
        pytest.param("docs/mixed-instances.md", marks=pytest.mark.long),
    ],
)
def test_commands_of_the_planning_pages_run(run: Run, tmp_path: Path, page: str) -> None:
    """Every command of the page, in order, on the files of docs/examples, or on networks of its names."""
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    for head, name in enumerate(["cats", "dogs", "birds"]):
        (tmp_path / f"{name}.onnx").write_bytes(onnx_variant(name, head=head).SerializeToString())

    run_commands(run, ROOT / page)


@pytest.fixture
def running() -> Iterator[Running]:
    """A dispatcher under load, before servers that are not there."""
    found = Running(slo=0.3)
    with found.loaded(60):
        yield found
    found.stop()


@pytest.mark.slow
def test_commands_of_the_dispatch_page_run(
    run: Run, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of the page, in order: on the file that it shows, with the log of another dispatcher.

    Its own servers are away, so it is stopped when it has started.
    """
    page, events = ROOT / "docs" / "dispatch.md", tmp_path / "requests.npz"
    _write_log(events)
    file = (
        blocks(page, "yaml")[0]
        .replace("127.0.0.1:9100", "127.0.0.1:0")
        .replace("127.0.0.1:9101", "127.0.0.1:0")
    )
    (tmp_path / "CONFIG.yaml").write_text(file)
    target = target_of(running, tmp_path)
    serve = DispatchProcess.serve
    ends = partial(os.kill, os.getpid(), signal.SIGTERM)
    monkeypatch.setattr(DispatchProcess, "serve", lambda process: serve(process, started=ends))

    run_commands(
        run,
        page,
        [
            ("events.npz --", f"{events} --"),
            ("dispatch://127.0.0.1:9102?token_file=/path/token", target),
            ("'dispatch://127.0.0.1:9102'", f"'{target}' --count 2"),
            ("--windows 20", "--windows 2 --window 1s"),
        ],
    )


def _write_log(path: Path) -> None:
    """Write the event log of a dispatcher that had more requests than the page asks about."""
    found = bench({"slo_ms": 100.0}, servers=1)

    async def main() -> None:
        async with found as dispatcher:
            await poisson(dispatcher, EXPLAINED + 1, 400)

    in_virtual_time(main())
    found.journal.save(path)
