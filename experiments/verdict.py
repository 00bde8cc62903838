"""Whether an experiment's targets were reached, in a word and a sentence: what its note begins with."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["HOW", "Verdict", "verdict_of"]

HOW = "\n**How**"
"""What begins the second part of a note, after its verdict."""

BOLD = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*(])")
"""Where one sentence ends and the next begins."""

LABEL = re.compile(r"^(Reached|Reproduced|What it (shows|says)): ")
"""How a first sentence begins that needs no such word beside the verdict."""

OTHER_AGENT = "not a reproduction"
GOOD = {"reproduced": "reproduced", "reached": "reached"}
BAD = {"not reproduced": "not reproduced", "not reached": "missed", "missed": "missed"} | dict.fromkeys(
    ("not shown", "worse", "in part", "but for"), ""
)
"""Words in bold that say that something was not reached, and the verdict where nothing was."""


class Verdict(NamedTuple):
    """The verdict of a note."""

    word: str
    """`reached`, `missed`, `reproduced`, `not reproduced`, or one of the good ones `in part`; empty without a
    target."""

    sentence: str
    """The first sentence of the note, without its bold letters; empty without a note."""


def verdict_of(note: str) -> Verdict:
    """Return what a note says before `**How**`.

    The words in bold decide, so that a note that begins with what was reached does not hide what was missed.
    """
    said = note.partition(HOW)[0].strip()
    bold = " ".join(" ".join(BOLD.findall(said)).lower().split())
    sentence = " ".join(SENTENCE.split(said.split("\n\n")[0], maxsplit=1)[0].replace("**", "").split())
    sentence = LABEL.sub("", sentence, count=1)
    return Verdict(_word(bold), sentence[:1].upper() + sentence[1:])


def _word(bold: str) -> str:
    """Return the verdict that words in bold make."""
    if OTHER_AGENT in bold:
        return "not reproduced"
    missed = [words for words in BAD if words in bold]
    for words in missed:
        bold = bold.replace(words, "")
    reached = next((word for words, word in GOOD.items() if words in bold), "")
    if not missed:
        return reached
    return f"{reached} in part" if reached else BAD[missed[0]]
