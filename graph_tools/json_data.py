# SPDX-License-Identifier: Apache-2.0
"""Convert dataclasses to JSON data, with `Annotated` types for constraints that Python's types cannot express.

tools/make_schemas.py writes docs/schemas from these types.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np


class JsonSchema(dict[str, Any]):
    """The JSON Schema of a value, for an `Annotated` type."""

    # Types are compared by hash.
    __hash__ = object.__hash__  # type: ignore[assignment]


Count = Annotated[int, JsonSchema(type="integer", minimum=0)]
Positive = Annotated[int, JsonSchema(type="integer", minimum=1)]
NotNegative = Annotated[float, JsonSchema(type="number", minimum=0)]
Fraction = Annotated[float, JsonSchema(type="number", minimum=0, maximum=1)]
Difference = Annotated[float, JsonSchema(anyOf=[{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}])]
"""A number that may be infinite or NaN, which `as_data` converts to words."""
Sha256 = Annotated[str, JsonSchema(type="string", pattern="^[0-9a-f]{64}$")]

_Getter = TypeVar("_Getter", bound=Callable[..., Any])
_Made = TypeVar("_Made")


def reported(getter: _Getter) -> _Getter:
    """Mark the getter of a property whose value is part of the JSON of its dataclass, like those of fields."""
    vars(getter)["reported"] = True
    return getter


class Report:
    """A dataclass whose JSON has a schema in docs/schemas."""

    SCHEMA: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return the report as its schema in docs/schemas describes it."""
        data: dict[str, Any] = as_data(self)
        return data


@cache
def members(kind: type) -> dict[str, str]:
    """Return the attributes that are part of the JSON of a dataclass, by their names there: properties, then fields.

    Fields that begin with an underscore or are hidden by their metadata are left out. A trailing underscore, which
    avoids a conflict with a Python keyword, is not part of the name.
    """
    getters = {
        name: value.fget
        for base in reversed(kind.__mro__)
        for name, value in vars(base).items()
        if isinstance(value, property)
    }
    names = [name for name, getter in getters.items() if "reported" in vars(getter)]
    names += [
        field.name
        for field in dataclasses.fields(kind)
        if not field.name.startswith("_") and not field.metadata.get("hidden")
    ]
    return {name.rstrip("_"): name for name in names}


def as_data(value: Any) -> Any:
    """Convert dataclasses, mappings and sequences to dicts, lists and plain values.

    Raises
    ------
    TypeError
        JSON cannot represent a value.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        head = {"schema": value.SCHEMA} if isinstance(value, Report) else {}
        return head | {name: as_data(getattr(value, attribute)) for name, attribute in members(type(value)).items()}
    if isinstance(value, Mapping):
        return {str(key): as_data(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_data(element) for element in value]
    if isinstance(value, (set, frozenset)):
        return sorted(as_data(element) for element in value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return as_data(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"report: a {type(value).__name__}, expected a type that JSON has")


def summary(kind: type[_Made], source: Any, **more: Any) -> _Made:
    """Create a dataclass from the attributes of the same names of another object, and from those in `more`."""
    names = [field.name for field in dataclasses.fields(kind) if field.name not in more]  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **more)


def write_json(data: dict[str, Any], path: str | Path) -> None:
    """Write a report so that no reader sees an incomplete file; an `OSError` contains the file name."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(to_text(data), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        # An error in the middle of a file carries no file name.
        raise OSError(error.errno, error.strerror, str(path)) from error


def to_text(data: dict[str, Any]) -> str:
    """Return a report as JSON text that people can read and compare."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
