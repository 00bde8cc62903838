"""Looks at a message of protobuf before protobuf reads it.

To read a message takes time for each of its fields, and holds up all other requests: one of 16 MB that is
made of nothing but empty inputs takes seconds. Fields whose content is not looked at, such as raw values,
are quick.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.dispatch.front.intake import Oversize

__all__ = ["LARGEST_LISTS", "Parts", "check_work"]

Parts = Mapping[int, "Parts | None"]
"""What is known of a message's fields, by their numbers: the parts of one that is a message, None if its
content is not looked at. All others are counted by their size, as lists of values."""
SHORT = 65_536
"""Bytes of a message that is read in any case."""
SMALL = 4_096
"""Bytes of a part that is not looked into."""
LARGEST_LISTS = 2_000_000
"""Bytes of a message besides its raw values and texts, as for JSON."""
FIELD = 10
"""Bytes that each field counts for, at least."""
NOTHING: Parts = {}
VARINT, EIGHT, LONG, FOUR, GROUP = 0, 1, 2, 5, (3, 4)
"""How a field is written (protobuf's wire types). What is in a group counts as if it were not."""


def check_work(data: bytes, parts: Parts) -> None:
    """Check that a message can be read quickly.

    Raises:
        Refused: It has too much besides raw values.
    """
    if len(data) > SHORT and _work(data, 0, len(data), parts) > LARGEST_LISTS:
        raise Oversize(
            f"a request has at most {LARGEST_LISTS} bytes of lists; "
            "send the values in raw_input_contents or tensor_content"
        )


def _work(data: bytes, at: int, end: int, parts: Parts) -> int:
    """Return the bytes that count, at least as soon as they are too many.

    What is malformed ends it: protobuf says what is wrong.
    """
    work = 0
    try:
        while at < end and work <= LARGEST_LISTS:
            tag, at = data[at], at + 1
            if tag > 127:
                tag, at = _varint(data, at - 1)
            work += FIELD
            kind = tag & 7
            if kind == VARINT:
                _, at = _varint(data, at) if data[at] > 127 else (0, at + 1)
            elif kind == LONG:
                size, at = data[at], at + 1
                if size > 127:
                    size, at = _varint(data, at - 1)
                inside = parts.get(tag >> 3, NOTHING)
                if inside and size > SMALL:
                    work += _work(data, at, min(at + size, end), inside)
                elif inside is not None:
                    work += size
                at += size
            elif kind in (EIGHT, FOUR):
                at += 8 if kind == EIGHT else 4
            elif kind not in GROUP:
                break
    except IndexError:
        pass
    return work


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and where it ends; most have one byte, for which no call is needed."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError
