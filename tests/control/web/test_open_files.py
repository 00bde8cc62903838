"""How many files a process of ours may have open."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tuner.web.open_files import MOST_OPEN, limit, raise_limit

FEW = 256


@pytest.fixture
def few() -> Iterator[int]:
    """This process may open few files; yields how many it could."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_process_takes_what_it_may_have(few: int) -> None:
    """The limit that the system allows, or ours."""
    assert limit() == FEW

    raise_limit()

    assert limit() == (MOST_OPEN if few == resource.RLIM_INFINITY else min(few, MOST_OPEN))


def test_more_than_we_ask_for_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what has no limit."""
    asked = []
    monkeypatch.setattr(resource, "setrlimit", lambda *limits: asked.append(limits))
    for soft in (MOST_OPEN + 1, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, resource.RLIM_INFINITY))

        raise_limit()

        assert limit() >= MOST_OPEN
    assert asked == []


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("error", [ValueError, PermissionError])
def test_a_system_that_refuses_a_higher_limit_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Such as a sandbox: what may be open stays as it was."""

    def refuse(*_: object) -> NoReturn:
        raise error("not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(resource, "setrlimit", refuse)
        raise_limit()

    assert limit() == FEW
