"""Takes the README's pictures: ``tuner run`` in a terminal, its report, the daemon's page wide and narrow.

Run it with ``make pictures``. It needs a chromium; everything is simulated.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "images"
TUNER = [sys.executable, "-m", "tuner"]
RUN = "run sim://mlp?rate=300&seed=1 --slo p95=30ms --windows 9 --out first"
ADDRESS = "127.0.0.1:7497"
FILE = f"""
http: {{listen: "{ADDRESS}"}}
targets:
  - {{name: search, url: "sim://mlp?rate=150&seed=1", slo: p95=30ms, mode: apply, window: 1s}}
  - {{name: speech, url: "sim://mlp?rate=300&seed=2", slo: p95=40ms, mode: apply, window: 1s}}
"""
WINDOWS = 75


def main() -> None:
    """Write the pictures into ``docs/images``."""
    with tempfile.TemporaryDirectory() as folder:
        _terminal(Path(folder))
        _report(Path(folder) / "first" / "report.html")
        _page(Path(folder))


def _terminal(folder: Path) -> None:
    from rich.console import Console
    from rich.text import Text

    colors = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "118"}
    ran = subprocess.run(
        [*TUNER, *RUN.split()], cwd=folder, env=colors, capture_output=True, text=True, check=True
    )
    console = Console(record=True, width=118, file=io.StringIO())
    console.print(
        Text.assemble(
            ("$ ", "bold"), "tuner " + RUN.replace("sim://mlp?rate=300&seed=1", "'sim://mlp?rate=300&seed=1'")
        )
    )
    console.print(Text.from_ansi(ran.stdout))
    picture = console.export_svg(title="tuner run")
    (IMAGES / "run.svg").write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))


def _report(page: Path) -> None:
    """The report's figures; the table of its windows begins below the picture."""
    from playwright.sync_api import sync_playwright

    from tests.chromium import CHROMIUM

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1120, "height": 1690})
        shown.goto(page.as_uri())
        shown.screenshot(path=IMAGES / "report.png")
        browser.close()


def _page(folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    from tests.chromium import CHROMIUM

    (folder / "servetune.yaml").write_text(FILE)
    daemon = subprocess.Popen([*TUNER, "daemon", "servetune.yaml"], cwd=folder)
    try:
        _wait(f"http://{ADDRESS}/api/targets/search")
        time.sleep(WINDOWS)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for name, width, height in (("page", 1280, 860), ("page-narrow", 390, 860)):
                page = browser.new_page(viewport={"width": width, "height": height})
                page.goto(f"http://{ADDRESS}")
                page.wait_for_selector("#costs .cell")
                page.screenshot(path=IMAGES / f"{name}.png")
            browser.close()
    finally:
        daemon.terminate()
        daemon.wait(30)


def _wait(address: str) -> None:
    for _ in range(120):
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(1)
    raise TimeoutError(address)


if __name__ == "__main__":
    main()
