"""The JSON API under requests that nobody thought of, made from its own OpenAPI document."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs fastapi and uvicorn")
pytest.importorskip("uvicorn", reason="needs fastapi and uvicorn")

from tests.control.daemon.daemon_bed import Bed
from tests.control.web.site import TOKEN, Site
from tests.waiting import eventually

TOOL = Path(sys.executable).with_name("schemathesis")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not TOOL.exists(), reason="needs schemathesis")
def test_no_request_breaks_it(bed: Bed) -> None:
    """No 5xx, and every answer is as the document says."""
    bed.write(("a", "apply", ""), ("b", "observe", ""))
    with Site(bed) as site:
        eventually(lambda: all(worker.turns > 5 for worker in site.daemon.workers.values()))
        command = [str(TOOL), "run", f"{site.web.address}/openapi.json", "--checks", "all", "--seed", "1"]
        command += ["--max-examples", "20", "-H", f"Authorization: Bearer {TOKEN}", "--no-color"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=bed.folder)

    assert done.returncode == 0, done.stdout[-6000:]
