"""Whatever a server calls itself, and whatever a file says, is one plain line of what a command prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import Run
from tests.control.daemon.file_server import FileServer
from tuner import adapters
from tuner.adapters import ApplyReport, Description
from tuner.errors import Refused
from tuner.knobs import Configuration
from tuner.profiler import attachment

EVIL = "m [/INST] [red]x\x1b[2J\nforged: a line\u202e"


class EvilServer(FileServer):
    """Its words are markup, escapes and lines of their own."""

    refuses = True

    def describe(self) -> Description:
        return replace(super().describe(), model=EVIL, server=EVIL, version=EVIL, notes=(EVIL,))

    def apply(self, wanted: Configuration) -> ApplyReport:
        if self.refuses:
            raise Refused(EVIL)
        return super().apply(wanted)


@pytest.mark.parametrize(
    "arguments",
    [
        ("observe", "sim://x", "--count", "2"),
        ("run", "sim://x", "--slo", "p95=30ms", "--windows", "3", "--out", "o"),
        ("run", "sim://x", "--slo", "p95=30ms", "--windows", "3", "--out", "o", "--restore"),
        ("recommend", "sim://x", "--slo", "p95=30ms", "--windows", "1"),
        ("sweep", "sim://x", "--rate", "200", "--grid", "max_batch_size=1,4", "--seconds", "1s"),
        ("calibrate", "sim://x", "--rate", "200", "--seconds", "1s"),
        ("config", "check", "servetune.yaml", "--connect"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_words_of_a_server(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """They command no terminal, break no markup, and begin no line."""
    server = EvilServer(tmp_path / "server")
    server.refuses = "calibrate" not in arguments
    for module in (attachment, adapters):
        monkeypatch.setattr(module, "connect", lambda *_: server)
    (tmp_path / "servetune.yaml").write_text("targets: [{name: a, url: 'sim://x', slo: p95=30ms}]\n")

    said = run(*arguments).said

    assert "m [/INST] [red]x" in " ".join(said.split()) or "recommend" in arguments
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert not any(line.strip().startswith("forged") for line in said.splitlines())
