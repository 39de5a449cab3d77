# SPDX-License-Identifier: Apache-2.0
"""The base of the dataclasses that configure tables: checks of their fields, and conversion to and from JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Self


class Setting:
    """A frozen dataclass with a `kind`, by which its family (a direct subclass of this class) finds it again.

    Two settings are equal if they have the same class and fields.
    """

    kind: ClassVar[str]
    # What messages call the family: "optimizer".
    family: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Setting]]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "family" in cls.__dict__:
            cls._kinds = {}
        elif "kind" in cls.__dict__:
            cls._kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        """Check the fields; subclasses extend it."""

    def to_config(self) -> dict[str, Any]:
        """Return what from_config needs: JSON values; fields that are None are left out."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind, **{name: value for name, value in values.items() if value is not None}}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make the setting of any class of this family that to_config described.

        Raises
        ------
        ValueError
            If no class of the family has this kind, or a field is unknown or wrong.
        """
        kind = config.get("kind") if isinstance(config, dict) else config
        found = cls._kinds.get(kind) if isinstance(kind, str) else None
        if found is None:
            raise ValueError(f"{cls.family}: kind {kind!r}, expected one of {', '.join(sorted(cls._kinds))}")
        fields = {name: value for name, value in config.items() if name != "kind"}
        unknown = fields.keys() - {field.name for field in dataclasses.fields(found)}  # type: ignore[arg-type]
        if unknown:
            raise ValueError(f"{cls.family} {kind}: unknown field {min(unknown)!r}")
        return found._of_fields(fields)  # type: ignore[return-value]

    @classmethod
    def _of_fields(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields)

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return `value` if it is a setting of this family, or the setting that it describes."""
        if isinstance(value, dict):
            return cls.from_config(value)
        if not isinstance(value, cls):
            names = ", ".join(sorted(kind.__name__ for kind in cls._kinds.values()))
            raise ValueError(f"{cls.family}: {value!r}, expected one of {names}")
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setting) and type(self) is type(other) and self.to_config() == other.to_config()

    def __hash__(self) -> int:
        return hash(type(self))

    def _number(self, name: str, low: float, high: float = math.inf, *, above: bool = False) -> None:
        """Check that a field is a finite number from `low` (or above it) to `high`, and store it as a float."""
        value = getattr(self, name)
        bound = f"above {low:g}" if above else f"of at least {low:g}"
        limit = "" if math.isinf(high) else f" and at most {high:g}"
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < low or value > high or (above and value == low):
            raise ValueError(f"{type(self).__name__}: {name} is {value!r}, expected a number {bound}{limit}")
        object.__setattr__(self, name, float(value))

    def _whole(self, name: str, low: int, high: int) -> None:
        """Check that a field is an integer in [low, high]."""
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{type(self).__name__}: {name} is {value!r}, expected an integer from {low} to {high}")
