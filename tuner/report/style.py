"""How the figures of the experiments look: one palette, one look per policy, published values marked.

The colours are those of Okabe and Ito, which people with a colour vision deficiency can tell apart; each
policy also has a marker of its own. Nothing is drawn on a screen.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.files.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from tuner.report.series import Series

__all__ = [
    "INK",
    "MUTED",
    "Drawing",
    "Look",
    "Stroke",
    "bars",
    "curves",
    "decades",
    "figure",
    "floats",
    "legend",
    "look",
    "plain",
    "published",
    "save",
    "strokes",
    "write",
]

INK, MUTED = "#1b2733", "#7b8794"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A7F00", INK)
MARKERS = "osD^vPX*"
POLICIES = ("symphony", "eager", "nexus", "clockwork", "timeout", "clipper", "tuned", "ideal")
DISTRIBUTIONS = {
    "kairos, refusing": 6, "kairos+": 5, "kairos": 0, "ribbon": 1, "drs": 2, "clkwrk, refusing": 3,
    "clkwrk": 4, "oracle": 7, "bound": 7,
}  # fmt: skip
"""Which colour and marker each has; of two that a name begins with, the first counts."""
LINES = ("-", "--", ":", "-.")
"""Dashes that tell those apart that share a colour."""
DPI = 110
UNDATED: dict[str, dict[str, None]] = {
    "png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None},
}  # fmt: skip
"""What is left out of a file by its form, so that the same figure gives the same bytes."""


class Drawing(NamedTuple):
    """A figure that is drawn and not yet written."""

    figure: Figure
    part: str = ""
    """What it shows, where there are several of one thing: part of the file's name."""
    colors: int | None = None
    """How many colours the file has; None: as many as it needs. See :func:`save`."""


class Look(NamedTuple):
    """How one curve is drawn."""

    color: str
    marker: str


def look(name: str, index: int = 0) -> Look:
    """Return a policy's look, the same in every figure; ``index`` chooses it for any other name.

    A name begins with the policy's, as in ``symphony (20 ms)``.
    """
    families = {policy: number for number, policy in enumerate(POLICIES)} | DISTRIBUTIONS
    known = [number for policy, number in families.items() if name.lower().startswith(policy)]
    number = known[0] if known else index
    return Look(PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)])


class Stroke(NamedTuple):
    """How what one agent did is drawn."""

    color: str
    line: str


AGENTS = {
    "rrl": Stroke(PALETTE[0], "-"),
    "rrl_paper": Stroke(PALETTE[0], "--"),
    "rrl_code": Stroke(PALETTE[0], ":"),
    "capes": Stroke(PALETTE[1], "-"),
    "capes_level": Stroke(PALETTE[1], "--"),
    "deeprm": Stroke(PALETTE[2], "-"),
    "hill_climb": Stroke(PALETTE[3], "-"),
    "clipper_aimd": Stroke(PALETTE[3], "--"),
    "tpe": Stroke(PALETTE[4], "-"),
    "gp": Stroke(PALETTE[5], "-"),
    "q_learning": Stroke(PALETTE[6], "-"),
    "random": Stroke(MUTED, "-"),
}
"""Each has the same colour and dashes in every figure."""


def strokes(names: Sequence[str]) -> list[Stroke]:
    """Return how the agents of a panel are drawn, each in its own way.

    A name is the agent's, or begins with it, as ``rrl:delta=2`` and ``rrl cold`` do. Variants of one agent
    have its colour with other dashes, as long as there are some; agents not known here have what is left.
    """
    usual = [AGENTS.get(re.split("[: ]", name.lower())[0]) for name in names]
    used = {stroke.color for stroke in usual if stroke}
    every = [Stroke(color, line) for line in LINES for color in PALETTE]
    others = sorted(every, key=lambda stroke: stroke.color in used)
    found: dict[int, Stroke] = {}
    for place in sorted(range(len(names)), key=lambda place: usual[place] is None):  # the known ones choose
        own = usual[place]
        variants = [own, *(Stroke(own.color, line) for line in LINES)] if own else []
        free = (stroke for stroke in (*variants, *others) if stroke not in found.values())
        found[place] = next(free, others[0])
    return [found[place] for place in range(len(names))]


def figure(
    title: str, *, rows: int = 1, columns: int = 1, size: tuple[float, float] | None = None, **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return an empty figure and its panels.   # (rows, columns) of Axes.

    Args:
        title: What the figure shows, in a line.
        rows: Of panels.
        columns: Of panels.
        size: Inches; enough for the panels if None.
        **options: As of ``Figure.subplots``, such as ``sharey``.
    """
    from matplotlib.figure import Figure

    drawn = Figure(figsize=size or (0.8 + 4.0 * columns, 0.6 + 3.0 * rows), layout="constrained")
    axes = np.asarray(drawn.subplots(rows, columns, squeeze=False, **options))
    drawn.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(MUTED)
        panel.tick_params(colors=INK, labelsize=8)
        panel.set_axisbelow(True)
        panel.grid(axis="y", color=MUTED, alpha=0.25, lw=0.6)
        panel.xaxis.label.set(fontsize=9, color=INK)
        panel.yaxis.label.set(fontsize=9, color=INK)
    return drawn, axes


def plain(text: str) -> str:
    """Return a text from outside as figures take it: what stands between two ``$`` is mathematics to them."""
    return text.replace("$", r"\$")


def curves(panel: Axes, series: Iterable[Series]) -> None:
    """Draw curves: the median as a line with markers, from the least to the greatest as a band."""
    for index, one in enumerate(series):
        color, marker = look(one.name, index)
        x = np.array(one.x)
        panel.plot(x, floats(one.y), color=color, marker=marker, ms=4, lw=1.4, label=one.name)
        if one.low and one.high:
            panel.fill_between(x, floats(one.low), floats(one.high), color=color, alpha=0.18, lw=0)


def bars(panel: Axes, groups: Sequence[str], series: Sequence[tuple[str, Sequence[float | None]]]) -> None:
    """Draw bars side by side, a group for each label, a bar in it for each named row of heights."""
    width = 0.8 / len(series)
    middles = np.arange(len(groups))
    for index, (name, heights) in enumerate(series):
        offset = (index - (len(series) - 1) / 2) * width
        color, _ = look(name, index)
        panel.bar(middles + offset, floats(heights), width * 0.92, color=color, label=name)
    panel.set_xticks(middles, groups)


def published(
    panel: Axes, x: Sequence[float], y: Sequence[float | None], label: str | None = "published"
) -> None:
    """Mark values that the paper gives: black crosses on top of everything."""
    panel.scatter(x, floats(y), marker="x", s=42, color=INK, linewidths=1.6, zorder=5, label=label)


def legend(panel: Axes, **options: Any) -> None:
    """Add a legend without a frame."""
    panel.legend(**{"fontsize": 8, "frameon": False, **options})


def decades(axis: Axis) -> None:
    """Label a logarithmic axis in numbers as people write them, a short one at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)))
    axis.set_major_formatter("{x:,.9g}")
    axis.set_minor_formatter(NullFormatter())


def save(drawn: Figure, folder: Path, name: str, *, colors: int | None = None, form: str = "png") -> Path:
    """Write ``NAME.png``, or another form; the same figure gives the same bytes.

    Args:
        drawn: The figure.
        folder: Where it goes.
        name: Of the file.
        colors: How many colours to reduce a ``png`` to, 2 to 256: a third of the size where bands overlap.
        form: ``png``, ``svg`` or ``pdf``.

    Raises:
        StorageError: It cannot be written.
    """
    path = folder / f"{name}.{form}"
    content = _content(drawn, form)
    write_atomically(path, content if colors is None or form != "png" else _reduced(content, colors))
    return path


def write(drawn: Figure, path: Path) -> None:
    """Write a file in the format that its ending names.

    Raises:
        StorageError: It cannot be written; a picture that was there is still whole.
    """
    write_atomically(path, _content(drawn, path.suffix.lower().removeprefix(".")))


def _content(drawn: Figure, form: str) -> bytes:
    """Return a figure as a file in a format, such as ``png``."""
    for panel in drawn.axes:
        panel.title.set_fontsize(9)  # setting the text sets the size, too
    from matplotlib import rc_context

    content = io.BytesIO()
    # Publishers refuse fonts of type 3, which is what matplotlib embeds unless told.
    with rc_context({"pdf.fonttype": 42, "svg.hashsalt": "servetune"}):
        drawn.savefig(content, format=form, dpi=DPI, metadata=UNDATED.get(form))
    return content.getvalue()


def _reduced(png: bytes, colors: int) -> bytes:
    """Return a picture with fewer colours."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        reduced = image.convert("RGB").quantize(colors, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    content = io.BytesIO()
    reduced.save(content, format="png", optimize=True)
    return content.getvalue()


def floats(values: Iterable[float | None]) -> np.ndarray:
    """Return what can be drawn: NaN, a gap, for None."""
    return np.array([math.nan if value is None else value for value in values], dtype=float)
