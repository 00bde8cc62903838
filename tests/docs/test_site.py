"""The site's reference holds everything that the program has, and its links are those of the site."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

import pytest

from tests.docs.page import ROOT

HERE = str(ROOT / "docs" / "site")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The script that builds the site; Sphinx itself runs in `make docs`."""
    sys.path.insert(0, HERE)
    try:
        return import_module("build")
    finally:
        sys.path.remove(HERE)


def test_every_command_and_field_is_in_the_reference(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generated from the command line's own tree, and from the models of files."""
    from tuner.cli.exit_code import ExitCode
    from tuner.command import app
    from tuner.control.daemon.config import TargetConfig

    monkeypatch.syspath_prepend(HERE)
    pages = build.pages()

    for command in app.registered_commands:
        assert command.callback is not None
        assert f"## tuner {command.callback.__name__}\n" in pages["reference/commands.md"]
    for field in TargetConfig.model_fields:
        assert f"| `{field}` | " in pages["reference/files.md"]
    assert all(f"| `{code.value}` | " in pages["reference/exit-codes.md"] for code in ExitCode)
    assert "`tuner run` and `tuner serve` as soon as they have" in pages["reference/exit-codes.md"]
    assert "`/api/targets/{name}/rollback`" in pages["reference/http.md"]
    assert "`servetune_dispatch_requests_total`" in pages["reference/metrics.md"]


def test_every_constant_of_a_simulated_server_is_in_the_reference(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its default and its unit; those of TensorFlow Serving in part from what both kinds share."""
    monkeypatch.syspath_prepend(HERE)
    page = build.pages()["reference/files.md"]

    assert "### A server model: `triton`\n" in page
    assert "| `gap` | `0.00015` | Seconds an instance is taken per batch beside" in page
    assert "| `table` | `{1: 0.005, 2: 0.0055," in page
    assert "| `op_serial` | `0.2` | Share of an operation that is not cut. |" in page
    assert "| `restart_seconds` | `12` | How long a change takes" in page


def test_links_of_the_front_page_lead_into_the_site(build: ModuleType) -> None:
    """And those to what is no page lead into the repository."""
    text = build.relinked(ROOT / "docs" / "adapters.md", "adapters.md", {"docs/agents.md": "agents.md"})

    assert "](agents.md#one-of-your-own)" in text
    assert f"]({build.REPOSITORY}/tree/main/docs/examples/kettle)" in text
    assert f"]({build.REPOSITORY}/blob/main/adapters/backend.py)" in text
