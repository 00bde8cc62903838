"""YAML files of settings, checked against a pydantic model; a message names line and field of each mistake.

The model is the schema. Validators find the file's folder in ``info.context["folder"]``, for names of other
files. Aliases are refused, as is a key given twice: the one lets ten lines stand for a billion values, the
other hides a setting.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, RootModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from tuner.errors import InvalidInput, StorageError
from tuner.files.storage import read_file
from tuner.printable import one_line

__all__ = ["keys_of", "load_yaml", "problem_of", "shown"]

LARGEST = 10_000_000
"""Bytes."""
DEEPEST = 50
"""Levels of nesting."""
LISTED = 5
"""Mistakes that a message lists."""
LONGEST = 1000
"""Characters of what a message says of one mistake."""
LARGEST_NUMBER = 1e300
"""No number in a file may be larger, so that each can be a float."""
TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "timestamp", "seq", "map")
)
"""Types of the values that a file may hold."""

Place = tuple[str | int, ...]
"""Where a value is: keys and indices from the top."""
Model = TypeVar("Model", bound=BaseModel)


class _Mistake(NamedTuple):
    line: int
    text: str


class _Refused(Exception):
    """Mistakes that end the reading."""

    def __init__(self, line: int, text: str) -> None:
        self.mistake = _Mistake(line, text)


def load_yaml(path: Path, model: type[Model], **context: Any) -> Model:
    """Read a file and check it.

    Args:
        path: A YAML 1.2 file of at most 10 MB.
        model: What it must describe.
        context: What validators find in ``info.context``, besides the file's folder.

    Raises:
        StorageError: The file cannot be read.
        InvalidInput: It is not YAML, or not what the model asks for; names file, line and field of up to 5
            mistakes, such as ``cluster.yaml line 4: sessions[0].slo_ms: must be greater than 0, but got -5``.
    """
    try:
        value, lines = _parse(_read(path))
    except _Refused as refused:
        raise _invalid(path, [refused.mistake]) from None
    try:
        return model.model_validate(value, context={"folder": path.parent, **context})
    except ValidationError as error:
        details: Sequence[Any] = error.errors(include_url=False, include_context=False)
        mistakes = [_mistake(model, value, lines, detail) for detail in details]
        first = {mistake.text.partition(": ")[0]: mistake for mistake in reversed(mistakes)}  # one per place
        raise _invalid(path, sorted(first.values(), key=lambda m: m.line)) from None


def keys_of(path: Path) -> frozenset[str]:
    """Return the keys at the top of a file, to choose what it must describe; none if it cannot be read."""
    try:
        value, _ = _parse(_read(path))
    except (_Refused, StorageError):
        return frozenset()
    return frozenset(value) if isinstance(value, dict) else frozenset()


def _read(path: Path) -> str:
    try:
        content = read_file(path, LARGEST)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _Refused(line, "is not UTF-8 text; save it as UTF-8") from None


def _parse(text: str) -> tuple[Any, dict[Place, int]]:
    """Return the plain values of a file, and the line of each place in it."""
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = DEEPEST
    lines: dict[Place, int] = {}
    try:
        root = yaml.compose(text)
        if root is None:
            raise _Refused(1, "is empty; describe at least the required fields")
        return _plain(yaml, root, (), lines, set()), lines
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = str(error.problem or error.context).strip().splitlines()[0].partition(", if necessary")[0]
        raise _Refused(mark.line + 1 if mark else 1, f"is not valid YAML: {problem}") from None
    except (YAMLError, ValueError, OverflowError) as error:  # such as a control character
        raise _Refused(1, f"is not valid YAML: {str(error).strip().splitlines()[0]}") from None


def _plain(yaml: YAML, node: Node, place: Place, lines: dict[Place, int], seen: set[int]) -> Any:
    """Return the plain value of a node. ``lines`` and ``seen`` (nodes so far) are modified in place."""
    begin = max(node.start_mark.line + 1, lines.get(place[:-1], 1))  # an alias begins where its anchor is
    line = lines.setdefault(place, begin)
    if id(node) in seen:
        raise _Refused(line, f"{_name(place)}: aliases (*{node.anchor}) are not supported; write it out")
    seen.add(id(node))
    if node.tag not in TAGS:
        raise _Refused(
            line, f"{_name(place)}: the tag {node.tag} is not supported; leave it out, or quote text"
        )
    if isinstance(node, ScalarNode):
        return _scalar(yaml, node, place, line)
    if not isinstance(node, MappingNode):
        return [_plain(yaml, part, (*place, i), lines, seen) for i, part in enumerate(node.value)]
    values: dict[str, Any] = {}
    for key, part in node.value:
        begin = key.start_mark.line + 1
        if not isinstance(key, ScalarNode):
            raise _Refused(begin, f"{_name(place)}: a key must be a word")
        inner = (*place, key.value)
        if key.value in values:
            problem = f"{_name(inner)}: is given twice, first in line {lines[inner]}; keep one of them"
            raise _Refused(begin, problem)
        lines[inner] = begin
        values[key.value] = _plain(yaml, part, inner, lines, seen)
    return values


def _scalar(yaml: YAML, node: ScalarNode, place: Place, line: int) -> Any:
    """Return the value of a node that is a word, a number or a date."""
    try:
        value = yaml.constructor.construct_object(node)
    except (ValueError, KeyError, OverflowError) as error:  # looks like a date, or has a tag, and is none
        why = str(error) if isinstance(error, ValueError) else f"{node.value!r} is not of the type of its tag"
        raise _Refused(line, f"{_name(place)}: {why}; put it in quotes if it is text") from None
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        raise _Refused(line, f"{_name(place)}: is larger than any number that can be used here")
    if isinstance(value, str) and not _is_text(value):
        raise _Refused(line, f"{_name(place)}: holds a character that no text has: {value!a}")
    return value


def _is_text(value: str) -> bool:
    """Whether a text can be stored and printed; escapes in quotes can say others."""
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def _mistake(model: type[BaseModel], value: Any, lines: dict[Place, int], detail: Any) -> _Mistake:
    """Say one of pydantic's errors in the words and places of the file."""
    place, last = _locate(value, detail["loc"]), str(detail["loc"][-1]) if detail["loc"] else ""
    line = lines[place]
    if detail["type"] == "missing":
        return _Mistake(line, f"{_name((*place, last))}: is missing")
    if detail["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        return _Mistake(line, f"{_name(place)}: {_unknown(model, detail['loc'])}")
    return _Mistake(line, f"{_name(place)}: {problem_of(detail)}")


def problem_of(detail: Any) -> str:
    """Say one of pydantic's errors in our words: what is allowed, and what was written.

    Args:
        detail: The error, one of ``ValidationError.errors()``.
    """
    kind, message = detail["type"], str(detail["msg"])
    if kind in {"value_error", "assertion_error"}:
        return message.partition(", ")[2]
    if kind in {"model_type", "model_attributes_type", "dataclass_type", "dict_type"}:
        message = "must be a group of `field: value`"
    elif kind in {"list_type", "tuple_type"}:
        message = "must be a list"
    elif kind == "path_type":
        message = "must be the name of a file or folder"
    message = message.replace("Input should be", "must be").replace("Input should", "must")
    message = message.partition(", unable to parse")[0]
    return f"{message[0].lower()}{message[1:]}, but got {shown(detail['input'])}"


def _locate(value: Any, location: Sequence[str | int]) -> Place:
    """Return the place in the file that an error belongs to; pydantic's own labels are not places."""
    place: list[str | int] = []
    for part in location:
        if isinstance(value, dict):
            known = part in value
        else:
            known = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if known:
            place.append(part)
            value = value[part]
    return tuple(place)


def _unknown(model: type[BaseModel], location: Sequence[str | int]) -> str:
    """Say that a field does not exist, and which does."""
    models, name = [model], str(location[-1])
    for part in location[:-1]:
        inner = [field for m in models if (field := m.model_fields.get(str(part)))]
        if inner:
            models = [m for field in inner for m in _models_in(field.annotation)]
    known = sorted({field for m in models for field in _fields(m)})
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"there is no such field; did you mean '{close[0]}'?"
    return "there is no such field" + (f"; use one of {', '.join(known)}" if known else "")


def _fields(model: type[BaseModel]) -> list[str]:
    """Return what a file may set in a group: the fields of a model, or of the dataclass that it holds."""
    if issubclass(model, RootModel):
        root = model.model_fields["root"].annotation
        return [item.name for item in dataclasses.fields(root)] if dataclasses.is_dataclass(root) else []
    return list(model.model_fields)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _name(place: Place) -> str:
    """Write a place as people do: ``sessions[0].slo_ms``; the whole file is called so."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".") or "the file"


def shown(value: Any) -> str:
    """Return what was written in the place of something else, not too much of it."""
    if isinstance(value, dict | list):
        return "a group of fields" if isinstance(value, dict) else "a list"
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _short(text: str) -> str:
    """Return what is said of a mistake; it may repeat a value, however long that is."""
    text = one_line(text, LONGEST + 1)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _invalid(path: Path, mistakes: list[_Mistake]) -> InvalidInput:
    if len(mistakes) == 1:
        return InvalidInput(f"{path} line {mistakes[0].line}", _short(mistakes[0].text))
    listed = "".join(f"\n  line {mistake.line}: {_short(mistake.text)}" for mistake in mistakes[:LISTED])
    more = f"\n  and {len(mistakes) - LISTED} more" if len(mistakes) > LISTED else ""
    return InvalidInput(str(path), f"{len(mistakes)} mistakes{listed}{more}")
