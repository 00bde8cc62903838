"""What is known of a server's machine."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import configuration
from tuner.profiler.attachment import Attachment
from tuner.profiler.host import LocalHost, RemoteHost


@pytest.mark.parametrize(("host", "known"), [(LocalHost([]), True), (RemoteHost(), False)])
def test_the_cores_of_another_machine_are_not_known(host: LocalHost | RemoteHost, *, known: bool) -> None:
    """What its host assumes of it is a guess."""
    other: Any = SimpleNamespace()
    attachment = Attachment(
        backend=other,
        description=other,
        profiler=other,
        clock=other,
        host=host,
        load=None,
        original=configuration(),
    )

    assert math.isnan(attachment.cores) is not known
