"""The verdict of an experiment: a word and a sentence, read from its note."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.experiments.verdict import verdict_of

NOTES = Path(__file__).parents[2] / "experiments" / "notes"


@pytest.mark.parametrize(
    ("note", "word", "sentence"),
    [
        ("**Reached**: all 3 of\n3. More.\n", "reached", "All 3 of 3."),
        ("**Missed**: by 2.5 %. More.\n", "missed", "Missed: by 2.5 %."),
        ("**Reached**: fast. **Missed**: small.\n", "reached in part", "Fast."),
        ("**Reproduced**: it grows.\n\n**Not\nreproduced**: how much.\n", "reproduced in part", "It grows."),
        ("**Reproduced in part**: it grows.\n", "reproduced in part", "Reproduced in part: it grows."),
        ("**Reached but for one case**: fast.\n", "reached in part", "Reached but for one case: fast."),
        ("**Not reproduced**: a gain.\n", "not reproduced", "Not reproduced: a gain."),
        (
            "**Not a reproduction**: ours **reached** it.\n",
            "not reproduced",
            "Not a reproduction: ours reached it.",
        ),
        ("**Reached**: fast; **not reached**: small.\n", "reached in part", "Fast; not reached: small."),
        ("**Not reached**: fast.\n", "missed", "Not reached: fast."),
        (
            "**Over A: reached**; **over B: not shown**.\n",
            "reached in part",
            "Over A: reached; over B: not shown.",
        ),
        ("**Missed**: small. **Reached**: fast.\n", "reached in part", "Missed: small."),
        ("**What it shows**: a trade-off.\n", "", "A trade-off."),
        ("**Reached**: fast.\n\n**How**: **missed** at first.\n", "reached", "Fast."),
        ("", "", ""),
    ],
)
def test_words_in_bold_before_how_make_the_verdict(note: str, word: str, sentence: str) -> None:
    """So what was missed shows even where the first sentence says what was reached."""
    assert verdict_of(note) == (word, sentence)


@pytest.mark.parametrize("path", sorted(NOTES.glob("*.md")), ids=lambda path: path.stem)
def test_every_note_has_a_sentence_that_a_table_can_hold(path: Path) -> None:
    """It is the line of the experiment in the overviews."""
    sentence = verdict_of(path.read_text(encoding="utf-8")).sentence

    assert 20 < len(sentence) < 360
    assert "|" not in sentence
