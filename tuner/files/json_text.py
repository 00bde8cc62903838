"""Reads JSON from outside: whatever is wrong with it is a ValueError."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse_json"]


def parse_json(text: str | bytes) -> Any:
    """Return the value that a text in JSON stands for.

    Raises:
        ValueError: It is no JSON, not in UTF-8, has a number of too many digits, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
