"""Translates between a version's ``batching_params.pbtxt`` and our knobs; pure functions on messages.

A version without the file is served without batching. So the knobs are:

=========================  ======================================================================
knob                       fields
=========================  ======================================================================
``max_batch_size`` 1       no file
``max_batch_size`` k       ``max_batch_size`` k; or ``max_execution_batch_size`` k if the operator's file
                           enables large batch splitting: larger requests are then split, not refused
``batch_timeout``          ``batch_timeout_micros``
``max_enqueued_batches``   the same
``allowed_batch_sizes``    how many there are: k, k/2, k/4, ... 1 (0: any size is executed as it is)
=========================  ======================================================================

A field that is no knob keeps the operator's value. One default is ours: where the operator has no file, ours
lets 1,000 batches wait instead of 10, because a full queue refuses requests that were served before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import text_format

from tuner.adapters.tfserving.schema import message
from tuner.errors import AdapterError
from tuner.knobs import Configuration

__all__ = [
    "ALLOWED",
    "DEFAULT_ENQUEUED",
    "ENQUEUED",
    "FILE",
    "MAX_BATCH_SIZE",
    "TIMEOUT",
    "VERSION_KNOBS",
    "batch_limit",
    "parse_batching",
    "read_batching",
    "read_ours",
    "rewrite",
    "splits",
    "write_batching",
]

FILE = "batching_params.pbtxt"

MAX_BATCH_SIZE = "max_batch_size"
TIMEOUT = "batch_timeout"
ENQUEUED = "max_enqueued_batches"
ALLOWED = "allowed_batch_sizes"
VERSION_KNOBS = (MAX_BATCH_SIZE, TIMEOUT, ENQUEUED, ALLOWED)
"""Knobs that a new version folder changes."""

DEFAULT_BATCH = 1000
DEFAULT_ENQUEUED = 10
"""TensorFlow Serving's own, where the file does not say."""
ROOMY = 1000
LARGEST_BATCH = 8192
"""The largest batch limit, unless the operator's is larger."""

Batching = Any
"""A ``BatchingParameters`` message; None for a version that is served without batching."""


def parse_batching(text: str | None, where: str) -> Batching:
    """Read the text of a file; None stands for a version without one.

    Raises:
        AdapterError: It is no ``BatchingParameters``; the message names the file.
    """
    if text is None:
        return None
    try:
        return text_format.Parse(text, message("BatchingParameters")())
    except text_format.ParseError as error:
        raise AdapterError(f"{where}: {error}") from error


def write_batching(batching: Batching) -> str | None:
    """Return the text for the file, None for no file."""
    return None if batching is None else str(text_format.MessageToString(batching))


def read_batching(batching: Batching, names: Iterable[str]) -> Configuration:
    """Return the values of the named knobs."""
    return Configuration({name: _read(batching, name) for name in names})


def read_ours(batching: Batching, asked: Mapping[str, float], names: Iterable[str]) -> Configuration:
    """Return the values of the named knobs of a version of ours.

    A limit has so many halves and no more: one of 2 that was to have four allowed sizes has two. It is what
    was asked for, and a server that seemed to run something else would be changed over and over.

    Args:
        batching: Its parameters.
        asked: The values that it was made for.
        names: Of the knobs.
    """
    found = read_batching(batching, names)
    count = asked.get(ALLOWED, 0)
    if not (batching is None or found.get(ALLOWED, count) == count):
        present = list(batching.allowed_batch_sizes)
        if present == _allowed(present, _executed(batching), int(count)):
            return found.replace(**{ALLOWED: count})
    return found


def _read(batching: Batching, name: str) -> float:
    if batching is None:
        return 1 if name == MAX_BATCH_SIZE else 0
    size = _executed(batching)
    if name == MAX_BATCH_SIZE:
        return size
    if size == 1:
        return 0  # a batch of one waits for no other request and has one size only
    if name == TIMEOUT:
        return float(batching.batch_timeout_micros.value / 1e6)
    if name == ENQUEUED:
        return int(_value(batching, "max_enqueued_batches", DEFAULT_ENQUEUED))
    return len(batching.allowed_batch_sizes)


def batch_limit(batching: Batching) -> int:
    """Return the largest value that the operator's parameters leave for ``max_batch_size``."""
    if batching is None:
        return LARGEST_BATCH
    largest = _largest_request(batching)
    return largest if splits(batching) else max(largest, LARGEST_BATCH)


def rewrite(operators: Batching, configuration: Mapping[str, float]) -> Batching:
    """Return the parameters that make a configuration run.

    Args:
        operators: What the operator set; None if the model was served without batching.
        configuration: Values of the knobs. A knob that is missing keeps the operator's value.
    """
    size = int(configuration.get(MAX_BATCH_SIZE, 1 if operators is None else _executed(operators)))
    if size == 1:
        return None
    batching = message("BatchingParameters")()
    if operators is not None:
        batching.CopyFrom(operators)
    if operators is None:
        batching.max_enqueued_batches.value = ROOMY
    field = batching.max_execution_batch_size if splits(operators) else batching.max_batch_size
    field.value = size
    if TIMEOUT in configuration:
        batching.batch_timeout_micros.value = round(configuration[TIMEOUT] * 1e6)
    if ENQUEUED in configuration:
        batching.max_enqueued_batches.value = int(configuration[ENQUEUED])
    count = int(configuration[ALLOWED]) if ALLOWED in configuration else None
    sizes = _allowed(list(batching.allowed_batch_sizes), size, count)
    del batching.allowed_batch_sizes[:]
    batching.allowed_batch_sizes.extend(sizes)
    return batching


def _allowed(present: list[int], size: int, count: int | None) -> list[int]:
    """Return allowed sizes, increasing and ending with the limit, as the server requires."""
    if count is None:
        return [*[allowed for allowed in present if allowed < size], size] if present else []
    if count == len(present) and present and present[-1] == size:
        return present  # the operator chose as many, perhaps other ones than we would
    return sorted({max(size >> step, 1) for step in range(count)})


def splits(batching: Batching) -> bool:
    """Whether requests of more rows than a batch holds are split instead of refused."""
    return batching is not None and bool(batching.enable_large_batch_splitting.value)


def _largest_request(batching: Batching) -> int:
    return int(_value(batching, "max_batch_size", DEFAULT_BATCH))


def _executed(batching: Batching) -> int:
    if splits(batching):
        return int(_value(batching, "max_execution_batch_size", _largest_request(batching)))
    return _largest_request(batching)


def _value(batching: Batching, field: str, default: int) -> int:
    return int(getattr(batching, field).value) if batching.HasField(field) else default
