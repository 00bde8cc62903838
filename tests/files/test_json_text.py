"""JSON from outside: a value, or a ValueError."""

from __future__ import annotations

import pytest

from tuner.files.json_text import parse_json


@pytest.mark.parametrize(
    "text", ["{", b"\xff", "9" * 10_000, "[" * 200_000 + "]" * 200_000, '{"a":' * 200_000]
)
def test_whatever_is_wrong_is_a_value_error(text: str | bytes) -> None:
    """Also what Python reports otherwise."""
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_a_value_is_read() -> None:
    """From text or bytes."""
    assert parse_json('{"a": [1]}') == parse_json(b'{"a": [1]}') == {"a": [1]}
