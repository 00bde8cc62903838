"""Makes texts from outside safe to print: a terminal obeys the control characters in them."""

from __future__ import annotations

__all__ = ["one_line", "printable"]


def printable(text: str) -> str:
    """Return a text without what cannot be seen: control characters, escapes, marks of direction.

    Ends of lines stay; other space becomes blanks.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else " " if character.isspace() else ""
        for character in text
    )


def one_line(text: str, longest: int = 500) -> str:
    """Return somebody's words on one line, printable, not too many of them."""
    return " ".join(printable(text).split())[:longest]
