# SPDX-License-Identifier: Apache-2.0
"""Read members of mappings that were parsed from YAML or JSON; every error message names the member."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cost_model.errors import CostModelError, WorkloadError

REQUIRED = object()
SCENARIOS = Path(__file__).parent / "scenarios"


class Reader:
    """Take the members of a mapping one by one and report the remaining ones as errors.

    Parameters
    ----------
    place : str
        Name of the mapping in messages, for example `models[2] (ranking)`.
    data : mapping
    error : type of CostModelError
        Raised for every fault.
    """

    def __init__(self, place: str, data: object, error: type[CostModelError] = WorkloadError) -> None:
        if not isinstance(data, Mapping):
            raise error(f"{place}: {describe(data)} found, expected a mapping")
        self.place = place
        self._left = dict(data)
        self._error = error

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def names(self) -> list[str]:
        """Return the names of the members that were not taken yet."""
        return [str(name) for name in self._left]

    def fail(self, key: str, found: str, expected: str) -> CostModelError:
        """Return the error for a member."""
        return self._error(f"{self.place}.{key}: {found} found, expected {expected}")

    def take(self, key: str, default: Any = REQUIRED, expected: str = "a value") -> Any:
        """Take a member of any type."""
        if key not in self._left:
            if default is REQUIRED:
                raise self.fail(key, "nothing", expected)
            return default
        return self._left.pop(key)

    def number(
        self,
        key: str,
        default: object = REQUIRED,
        *,
        least: float = 0.0,
        most: float = math.inf,
        positive: bool = False,
    ) -> float:
        """Take a finite number from `least` (or, if `positive`, above 0) to `most`."""
        expected = f"a number {'above 0' if positive else f'of at least {least:g}'}" + (
            f" and at most {most:g}" if most < math.inf else ""
        )
        value = self.take(key, default, expected)
        return check_number(value, lambda found: self.fail(key, found, expected), least, most, positive)

    def integer(self, key: str, default: Any = REQUIRED, *, least: int = 0, most: int = 1 << 30) -> int:
        """Take an integer from `least` to `most`."""
        expected = f"an integer from {least} to {most}"
        value = self.take(key, default, expected)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.fail(key, describe(value), expected)
        return value

    def text(self, key: str, default: Any = REQUIRED, *, one_of: Collection[str] = ()) -> str:
        """Take a text that is not empty; if `one_of` is given, it must be one of these."""
        expected = " or ".join(f"'{name}'" for name in one_of) if one_of else "a text"
        value = self.take(key, default, expected)
        if not isinstance(value, str) or not value or (one_of and value not in one_of):
            raise self.fail(key, describe(value), expected)
        return value

    def items(self, key: str, default: Any = REQUIRED) -> list[Any]:
        """Take a list that is not empty."""
        value = self.take(key, default, "a list")
        if value is default and default is not REQUIRED:
            return list(value)
        if not isinstance(value, list) or not value:
            raise self.fail(key, describe(value), "a list with at least one item")
        return value

    def inner(self, key: str) -> Reader:
        """Take a member that is a mapping."""
        return Reader(f"{self.place}.{key}", self.take(key, expected="a mapping"), self._error)

    def end(self) -> None:
        """Check that no members remain."""
        for key in self._left:
            raise self._error(f"{self.place}: unknown member '{key}' found")


def check_number(value: object, fail: Any, least: float, most: float, positive: bool) -> float:
    """Check that a value is a finite number in its range; `fail` returns the error for the value that was found."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not least <= float(value) <= most or (positive and float(value) <= 0):  # type: ignore[arg-type]
        raise fail(describe(value))
    return float(value)  # type: ignore[arg-type]


def describe(value: object) -> str:
    """Return a short description of a value for messages."""
    text = repr(value)
    return text if len(text) <= 40 else f"{type(value).__name__} {text[:30]}…"


def workload_file(path: str | Path) -> Path:
    """Return the path, or the file of the scenario in the package if `path` is the name of a scenario."""
    place = Path(path)
    shipped = SCENARIOS / f"{place}.yaml"
    return shipped if place.name == str(place) and not place.is_file() and shipped.is_file() else place


def read_json(path: Path, error: type[CostModelError], expected: str, most_bytes: int = 64 * 1024 * 1024) -> Any:
    """Read a JSON file; refuse a named pipe or a device, because these might never end.

    Raises
    ------
    CostModelError
        If the file is missing, not a regular file, too large or not JSON.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise OSError("not a regular file")
            if found.st_size > most_bytes:
                raise OSError(f"{found.st_size} bytes, more than {most_bytes}")
            return json.loads(opened.read(most_bytes))
    except (OSError, ValueError, RecursionError) as problem:
        raise error(f"{path}: {problem}, expected {expected}") from problem


def read_yaml(path: Path, error: type[CostModelError] = WorkloadError) -> Any:
    """Read a YAML (or JSON) file.

    Raises
    ------
    CostModelError
        If the file is missing or is not YAML.
    """
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"{path}: {problem.strerror}, expected a file that can be read") from problem
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as problem:
        raise error(f"{path}: {' '.join(str(problem).split())}, expected YAML") from problem
