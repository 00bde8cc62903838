"""Damages good input at random: whatever reads it must take it or refuse it, and never break.

Hypothesis draws the seeds. Each of them damages good inputs `TOGETHER` times, so that ten thousand rounds
cost seconds. A failure names its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

__all__ = ["ROUNDS", "damaged_bytes", "damaged_text", "rounds"]

ROUNDS, TOGETHER = 10_000, 50
"""Rounds of each test, and how many of them one seed gives."""
MANY = 1000
"""Rounds of which not all are refused."""

NUMBERS = (
    *("0", "-0", "-1", "1", "2", "0.0", "1e-320", "-1e308", "1e308", "1e999", "1e18", "4.9e-324", "1_0"),
    *("inf", "-Infinity", "NaN", "nan", "true", "null", "0x1p3", "٣", "²", "", "9223372036854775808"),
    *("4294967296", "65536", "99999", "9" * 400, "1" * 5000, "0." + "3" * 5000, "-" + "9" * 4400),
)
TEXTS = (
    *(
        "\x00",
        "\n",
        "\r\n",
        "\x1b[31m",
        "\u202e",
        "\ufeff",
        '"',
        "\\",
        "{",
        "}",
        "[/INST]",
        "é",
        "\U0001f600",
    ),
    *("%s", "{0}", "#", ":", ",", "=", " ", "x" * 300, "&a", "*a", "!!x"),
)
DEEP = ("[" * 3000, '{"a":' * 2000, "- " * 200)
Test = Callable[..., bool | None]


def rounds(test: Test, count: int = ROUNDS) -> Test:
    """Decorate a test that takes a source of randomness first: it runs ten thousand times, and is slow.

    One whose rounds take long has fewer. It may return whether what it damaged was taken, and not refused: of
    a thousand rounds, one is to be.
    """
    outcomes: list[bool | None] = []

    def repeated(seed: int, **fixtures: Any) -> None:
        random = Random(seed)
        for number in range(TOGETHER):
            try:
                outcomes.append(test(random, **fixtures))
            except Exception as error:
                error.add_note(f"round {number} of seed {seed}")
                raise
        assert len(outcomes) < MANY or any(one is not False for one in outcomes), "all is refused"

    repeated.__doc__, repeated.__name__, repeated.__module__ = test.__doc__, test.__name__, test.__module__
    seed, fixtures = Parameter("seed", Parameter.KEYWORD_ONLY), list(signature(test).parameters.values())[1:]
    named = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in fixtures]
    repeated.__signature__ = Signature([seed, *named])  # type: ignore[attr-defined]  # where pytest looks
    drawn = given(seed=st.integers(0, 2**63 - 1))(repeated)
    few = settings(max_examples=count // TOGETHER, database=None, derandomize=True)(drawn)
    decorated: Test = pytest.mark.long(pytest.mark.slow(few))
    return decorated


def damaged_text(random: Random, text: str, most: int = 4) -> str:
    """Return a text that is damaged in a few places, above all in its numbers."""
    for _ in range(random.randint(1, most)):
        begin = random.randrange(len(text) + 1)
        end = min(begin + int(random.expovariate(0.1)), len(text))
        kind = random.randrange(8)
        if kind <= 2:
            text = _another_number(random, text, begin)
        elif kind == 3:
            odd = random.choice(DEEP if random.random() < 0.05 else TEXTS)
            text = text[:begin] + odd + text[begin:]
        elif kind == 4:
            text = text[:begin] + text[end:]
        elif kind == 5:
            text = text[:end] + text[begin:]
        elif kind == 6:
            other = random.randrange(len(text) + 1)
            text = text[:other] + text[begin:end] + text[other:]
        else:
            text = text[:begin] + random.choice(NUMBERS) + text[end:]
    return text[:begin] if random.random() < 0.02 else text


def _another_number(random: Random, text: str, begin: int) -> str:
    """Replace the next number after a place."""
    while begin < len(text) and not text[begin].isdigit():
        begin += 1
    end = begin
    while end < len(text) and (text[end].isdigit() or text[end] in ".e+-"):
        end += 1
    return text[:begin] + random.choice(NUMBERS) + text[end:]


def damaged_bytes(random: Random, data: bytes, most: int = 4) -> bytes:
    """Return data that are damaged in a few places."""
    for _ in range(random.randint(1, most)):
        begin = random.randrange(len(data) + 1)
        end = min(begin + int(random.expovariate(0.1)), len(data))
        kind = random.randrange(6)
        if kind <= 1:
            data = data[:begin] + bytes([random.randrange(256)]) + data[begin + 1 :]
        elif kind == 2:
            data = data[:begin] + random.choice((b"\xff" * 9 + b"\x01", b"\x00" * 8, b"\x7f")) + data[end:]
        elif kind == 3:
            data = data[:begin] + data[end:]
        elif kind == 4:
            data = data[:end] + data[begin:]
        else:
            data = data[:begin] + random.randbytes(random.randint(1, 8)) + data[begin:]
    return data[:begin] if random.random() < 0.02 else data
