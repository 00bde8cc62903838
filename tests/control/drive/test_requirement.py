"""Whether there is something to tune."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tuner.adapters.triton.knobs import STATEFUL
from tuner.control.drive.requirement import require_knobs
from tuner.errors import InvalidInput


def attached(*why: str, size: int = 1) -> Any:
    return SimpleNamespace(
        space=SimpleNamespace(size=size), description=SimpleNamespace(model="mlp", without_knobs=why)
    )


@pytest.mark.parametrize(
    ("why", "advice"),
    [
        ((), r"--knob parameters\.threads=1,2"),
        ((STATEFUL,), r"value; the model has sequences .*\(instances=1,2\)"),
        ((f"s: {STATEFUL}",), r"value; s: the model has sequences"),
    ],
)
def test_a_target_without_knobs(why: tuple[str, ...], advice: str) -> None:
    """The advice is the adapter's where it says why there are none, and nothing that does harm."""
    with pytest.raises(InvalidInput, match="mlp has no knob with more than one.*" + advice) as caught:
        require_knobs(attached(*why))

    assert str(caught.value).endswith("; or use observe")
    assert ("parameters" in str(caught.value)) == (STATEFUL not in str(caught.value))
    require_knobs(attached(*why, size=2))
