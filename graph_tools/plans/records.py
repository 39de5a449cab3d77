# SPDX-License-Identifier: Apache-2.0
"""Convert frozen dataclasses to and from JSON objects: omit fields with default values, and refuse unknown fields."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from typing import Any, TypeVar

from graph_tools.errors import UnreadableError

_Record = TypeVar("_Record")

#: Class variables that tell which of several dataclasses an object is.
_TAGS = ("op", "kind")


def wrong(where: str, found: str, expected: str) -> UnreadableError:
    """Return the error for a fault in a plan."""
    return UnreadableError(f"{where}: {found}, expected {expected}")


def to_json(record: Any) -> str:
    """Write a dataclass as compact JSON with its version; equal plans give equal texts."""
    return json.dumps({"version": 1, **as_object(record)}, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def from_json(cls: type[_Record], text: str | bytes, where: str) -> _Record:
    """Read a dataclass from JSON.

    Raises
    ------
    UnreadableError
        The text is not JSON, has another version, or has fields that the class does not have.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise wrong(where, str(error), "JSON") from error
    if not isinstance(found, dict) or found.pop("version", None) != 1:
        raise wrong(where, "another version", "an object of version 1")
    return typing.cast(_Record, _record(cls, found, where))


def as_object(record: Any) -> dict[str, Any]:
    """Return a dataclass as a JSON object."""
    made = {tag: getattr(record, tag) for tag in _TAGS if _is_tag(type(record), tag)}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            made[field.name] = _plain(value)
    return made


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return as_object(value)
    return [_plain(element) for element in value] if isinstance(value, (tuple, list)) else value


def _is_tag(cls: Any, tag: str) -> bool:
    return hasattr(cls, tag) and all(field.name != tag for field in dataclasses.fields(cls))


def _record(cls: Any, found: Any, where: str) -> Any:
    if not isinstance(found, dict):
        raise wrong(where, repr(found), "an object")
    found = {key: value for key, value in found.items() if not (key in _TAGS and _is_tag(cls, key))}
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(found) - set(fields))
    if unknown:
        raise wrong(where, f"the field '{unknown[0]}'", f"one of {', '.join(fields)}")
    missing = [name for name, field in fields.items() if name not in found and field.default is dataclasses.MISSING]
    if missing:
        raise wrong(where, f"no '{missing[0]}'", "one")
    hints = typing.get_type_hints(cls)
    return cls(**{name: _value(hints[name], value, f"{where}: {name}") for name, value in found.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    """Check a JSON value against a type, and make the dataclasses and tuples in it."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _one_of(typing.get_args(hint), value, where)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise wrong(where, repr(value), "a list")
        return tuple(_value(typing.get_args(hint)[0], element, f"{where}[{i}]") for i, element in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return _record(hint, value, where)
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint or (hint is float and not math.isfinite(value)):
        raise wrong(where, repr(value), f"a value of type {hint.__name__}")
    return value


def _one_of(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    hints = tuple(hint for hint in hints if hint is not type(None))
    if len(hints) == 1:
        return _value(hints[0], value, where)
    if not dataclasses.is_dataclass(hints[0]):
        if type(value) not in hints:
            raise wrong(where, repr(value), " or ".join(choice.__name__ for choice in hints))
        return value
    tag = next(tag for tag in _TAGS if _is_tag(hints[0], tag))
    chosen = {getattr(choice, tag): choice for choice in hints}
    name = value.get(tag) if isinstance(value, dict) else None
    if name not in chosen:
        raise wrong(where, f"{tag} {name!r}", f"one of {', '.join(chosen)}")
    return _record(chosen[name], value, where)
