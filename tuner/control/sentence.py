"""Sentences about a target in the log."""

from __future__ import annotations

import logging

__all__ = ["log_sentence"]

log = logging.getLogger(__name__)


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
