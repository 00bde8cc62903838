"""Texts from outside, made safe to print."""

from __future__ import annotations

import pytest

from tuner.adapters.connection.channel import tidy
from tuner.errors import InvalidInput, Refused, UnknownModel
from tuner.printable import one_line, printable

CLEARS_THE_SCREEN = "\x1b[2J\x9b31m\x07"


@pytest.mark.parametrize("text", ["", "p95 30ms", "größer → 4 µs", "two\nlines"])
def test_what_can_be_printed_stays(text: str) -> None:
    """Letters of all scripts, signs and ends of lines."""
    assert printable(text) == text


def test_what_a_terminal_obeys_goes() -> None:
    """Escapes, control characters of both kinds, marks that turn the direction."""
    assert printable(f"a{CLEARS_THE_SCREEN}b\u202ec\td\r\n") == "a[2J31mbc d \n"


def test_one_line() -> None:
    """However many there were, and not too long."""
    assert one_line("two\n  lines\t\x1b[0m") == "two lines [0m"
    assert one_line("x" * 1000, 20) == "x" * 20


def test_words_of_servers_are_printable() -> None:
    """In errors, whoever raises them, and where they are taken in."""
    assert tidy(f"no {CLEARS_THE_SCREEN}memory; ") == "no [2J31mmemory"
    nobody = (
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Failed to connect to "
    )
    assert tidy(f"{nobody}remote host: Connection refused") == "Connection refused"
    assert str(Refused(f"no {CLEARS_THE_SCREEN}memory")) == "no [2J31mmemory"
    assert str(Refused("no memory\nerror: forged")) == "no memory error: forged"
    assert "'a error: forged'" in str(UnknownModel("a\nerror: forged", ["b\nc"] * 100))
    assert str(UnknownModel("a", ["b\nc"] * 100)).endswith("b c and 50 more")
    assert str(InvalidInput("x", "\x1b[1m bold")) == "x: [1m bold"
