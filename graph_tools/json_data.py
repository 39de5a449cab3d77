# SPDX-License-Identifier: Apache-2.0
"""From dataclasses to what JSON holds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np


def as_data(value: Any) -> Any:
    """Turn dataclasses, mappings and sequences into dicts, lists and plain values; `_private` fields are left out.

    Raises
    ------
    TypeError
        A value is none that JSON holds.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [
            one.name
            for one in dataclasses.fields(value)
            if not one.name.startswith("_") and not one.metadata.get("hidden")
        ]
        return {name: as_data(getattr(value, name)) for name in fields}
    if isinstance(value, dict):
        return {str(key): as_data(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_data(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(as_data(one) for one in value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return as_data(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"report: a {type(value).__name__}, expected what JSON holds")


def write_json(data: dict[str, Any], path: str | Path) -> None:
    """Write a report; a reader never sees half of it. `OSError` names the file."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(to_text(data), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        # What fails in the middle of a file does not say of which.
        raise OSError(error.errno, error.strerror, str(path)) from error


def to_text(data: dict[str, Any]) -> str:
    """Return a report as JSON text that people can read and compare."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
