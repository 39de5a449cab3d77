# SPDX-License-Identifier: Apache-2.0
"""Which rows a table forgets (strategies), and when it looks for them (triggers).

A sweep runs in short steps between updates. Evicted keys read the default row, and consumers of deltas get tombstones.
`table.evict()` starts a sweep by hand, whatever the triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from elastic_training._settings import Setting

DAY_S = 86_400.0


class Trigger(Setting):
    """When a sweep begins."""

    family: ClassVar[str] = "trigger"


@dataclass(frozen=True, eq=False)
class Rows(Trigger):
    """Begin a sweep when the table has more than `limit` rows; it looks once a second, or after 64 updates.

    The sweep evicts what the strategy condemns; if that is not enough, further rows in the strategy's order, until
    `keep` times the limit are left.
    """

    limit: int
    keep: float = 0.9
    kind: ClassVar[str] = "rows"

    def __post_init__(self) -> None:
        self._whole("limit", 1, 2**40)
        self._number("keep", 0, 1)


@dataclass(frozen=True, eq=False)
class Bytes(Trigger):
    """Begin a sweep when the table takes more than `limit` bytes of memory; like Rows."""

    limit: int
    keep: float = 0.9
    kind: ClassVar[str] = "bytes"

    def __post_init__(self) -> None:
        self._whole("limit", 1, 2**60)
        self._number("keep", 0, 1)


@dataclass(frozen=True, eq=False)
class Interval(Trigger):
    """Begin a sweep every `seconds` s of wall-clock time, if training goes on."""

    seconds: float
    kind: ClassVar[str] = "interval"

    def __post_init__(self) -> None:
        self._number("seconds", 0, above=True)


@dataclass(frozen=True, eq=False)
class Eviction(Setting):
    """A strategy and its triggers.

    Parameters
    ----------
    triggers : sequence of Trigger
        Each begins a sweep; none: only `table.evict()` does.
    """

    triggers: tuple[Trigger, ...] = field(default=(Interval(60.0),), kw_only=True)
    family: ClassVar[str] = "evict"

    def __post_init__(self) -> None:
        triggers = (self.triggers,) if isinstance(self.triggers, (Trigger, dict)) else self.triggers
        if not isinstance(triggers, Sequence) or isinstance(triggers, str):
            kinds = "a sequence of Rows, Bytes, Interval"
            raise ValueError(f"{type(self).__name__}: triggers is {triggers!r}, expected {kinds}")
        object.__setattr__(self, "triggers", tuple(Trigger.of(trigger) for trigger in triggers))

    @classmethod
    def of(cls, value: Any) -> Self:
        if isinstance(value, Trigger):
            raise ValueError(f"evict: {value} is a trigger, expected a strategy with it: Ttl(days=30, triggers=[...])")
        return super().of(value)

    def to_config(self) -> dict[str, Any]:
        return {**super().to_config(), "triggers": [trigger.to_config() for trigger in self.triggers]}

    def table_fields(self) -> dict[str, Any]:
        """Return the "eviction" object of the table's JSON."""
        config = self.to_config()
        return {"triggers": config.pop("triggers"), "strategy": config}


@dataclass(frozen=True, eq=False)
class Ttl(Eviction):
    """Evict rows that training has not met for `days` days (fractions are allowed)."""

    days: float = 30.0
    kind: ClassVar[str] = "ttl"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("days", 0, 36_500, above=True)


@dataclass(frozen=True, eq=False)
class CountDecay(Eviction):
    """Evict rows whose decayed number of occurrences is below `minimum`; it halves every `half_life_days`."""

    half_life_days: float = 7.0
    minimum: float = 1.0
    kind: ClassVar[str] = "count_decay"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("half_life_days", 0, 36_500, above=True)
        self._number("minimum", 0)


@dataclass(frozen=True, eq=False)
class L2Norm(Eviction):
    """Evict rows whose weights have an L2 norm below `minimum`."""

    minimum: float = 1e-3
    kind: ClassVar[str] = "l2_norm"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("minimum", 0)


@dataclass(frozen=True, eq=False)
class Score(Eviction):
    """Evict rows whose score is below `minimum`.

    Parameters
    ----------
    count, norm : float
        Weights of the logarithm of 1 + the decayed number of occurrences, and of the L2 norm of the row.
    half_life_days : float [days]
        Time after which an occurrence counts half.
    minimum : float
        Rows below this score are evicted by every sweep; with a trigger Rows or Bytes, lower scores leave first.
    """

    count: float = 1.0
    norm: float = 1.0
    half_life_days: float = 7.0
    minimum: float = 0.0
    kind: ClassVar[str] = "score"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("count", "norm", "minimum"):
            self._number(name, 0)
        self._number("half_life_days", 0, 36_500, above=True)
