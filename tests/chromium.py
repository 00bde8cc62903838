"""Where a browser for the tests of pages is: one that playwright brought, or one on the ``PATH``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["CHROMIUM"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
"""What distributions and vendors call it."""
KEPT = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
"""Where ``playwright install chromium`` puts its own."""


def _chromium() -> str | None:
    named = os.environ.get("CHROMIUM")
    brought = sorted(map(str, KEPT.glob("chromium*/chrome-*/chrome"))) if KEPT.is_dir() else []
    return named or next(filter(None, map(shutil.which, NAMES)), None) or (brought[-1] if brought else None)


CHROMIUM = _chromium()
"""The browser's file; the variable ``CHROMIUM`` names another one. None without any."""
