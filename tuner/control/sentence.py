"""Sentences about a target in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["about", "log_sentence", "target_of"]

log = logging.getLogger(__name__)

_TARGET: ContextVar[str] = ContextVar("target", default="")


@contextmanager
def about(name: str) -> Iterator[None]:
    """Let what is logged in a block be about a target, also by those who do not know of it, such as adapters.

    A thread that is begun there has to be given a copy of the context (:func:`contextvars.copy_context`).
    """
    before = _TARGET.set(name)
    try:
        yield
    finally:
        _TARGET.reset(before)


def target_of(record: logging.LogRecord) -> str:
    """Return the target that a message is about; empty if none. Called in the thread that logs it."""
    return str(getattr(record, "target", _TARGET.get()))


def log_sentence(
    name: str, sentence: str, level: int = logging.INFO, *, error: BaseException | None = None
) -> None:
    """Log a sentence, also as ``target`` and ``sentence`` of the record, which a log in JSON keeps apart.

    Args:
        name: The target's; empty for the daemon itself.
        sentence: What is to be said.
        level: As of `logging`.
        error: Logged with its traceback.
    """
    told = {"target": name, "sentence": sentence}
    log.log(level, "%s: %s", name or "daemon", sentence, extra=told, exc_info=error)
