"""How figures look: an agent is drawn alike in all of them; axes are labelled as people write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tuner.errors import StorageError
from tuner.report import style


def test_an_agent_looks_the_same_beside_any_other() -> None:
    """Whatever its place in the panel, under its own and its proper name."""
    three = style.strokes(["RRL", "CAPES", "DeepRM"])
    ten = style.strokes(
        [
            "rrl",
            "q_learning",
            "capes",
            "capes_level",
            "deeprm",
            "tpe",
            "gp",
            "hill_climb",
            "clipper_aimd",
            "random",
        ]
    )

    assert three == [ten[0], ten[2], ten[4]]
    assert len(set(ten)) == 10
    assert ten[3].color == ten[2].color


def test_variants_of_an_agent_share_its_colour() -> None:
    """They differ in their dashes, until there are none left; nobody is drawn like another."""
    cold = style.strokes(["rrl trained in simulation", "rrl cold", "tpe cold"])
    many = style.strokes([f"rrl:delta={delta}" for delta in range(6)])

    assert cold[0].color == cold[1].color
    assert cold[0].line != cold[1].line
    assert len({stroke.color for stroke in many[:4]}) == 1
    assert len(set(many)) == 6


def test_unknown_agents_get_what_is_left() -> None:
    """Of the colours that nobody has; the known ones keep theirs though they come later."""
    mine, yours, rrl = style.strokes(["mine", "yours", "rrl"])

    assert rrl == style.AGENTS["rrl"]
    assert len({mine.color, yours.color, rrl.color}) == 3


def test_logarithmic_axes_are_labelled_in_full() -> None:
    """A million is no 1e+06, beside 100,000."""
    figure, axes = style.figure("x")
    axis = axes[0, 0]
    axis.plot([1, 2], [100.0, 2e6])
    axis.set_yscale("log")
    style.decades(axis.yaxis)
    figure.draw_without_rendering()

    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert {"100,000", "1,000,000"} <= set(labels)
    assert not any("e" in label for label in labels)


def test_a_disk_that_is_full_leaves_the_picture_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written over, and the command ended in a traceback."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    figure, _ = style.figure("x")
    style.write(figure, tmp_path / "x.svg")
    before = (tmp_path / "x.svg").read_bytes()
    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(StorageError, match="No space left on device; choose"):
        style.write(figure, tmp_path / "x.svg")

    assert (tmp_path / "x.svg").read_bytes() == before
    assert os.listdir(tmp_path) == ["x.svg"]


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_the_same_figure_gives_the_same_bytes(tmp_path: Path, form: str) -> None:
    """In every form, whenever it is drawn."""
    files = []
    for name in ("a", "b"):
        figure, axes = style.figure("x")
        axes[0, 0].plot([1, 2], [3, 4], label="one")
        files.append(style.save(figure, tmp_path, name, form=form))

    assert [file.name for file in files] == [f"a.{form}", f"b.{form}"]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_fonts_of_a_pdf_are_of_a_type_that_publishers_take(tmp_path: Path) -> None:
    """Type 3, which is refused, is what matplotlib embeds unless told."""
    figure, _ = style.figure("x")

    content = style.save(figure, tmp_path, "x", form="pdf").read_bytes()

    assert b"/Type3" not in content
    assert b"/TrueType" in content or b"/CIDFontType2" in content
