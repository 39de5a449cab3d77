# SPDX-License-Identifier: Apache-2.0
"""Why one key has a row in a table, or has none, and when it would be evicted."""

from __future__ import annotations

import dataclasses
import datetime
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from elastic_training._library import ops
from elastic_training.admission import AlwaysAdmit, CountingFilter, PoissonFilter
from elastic_training.eviction import DAY_S, CountDecay, L2Norm, Rows, Score, Ttl
from elastic_training.layers.compressed_group import CompressedGroup
from elastic_training.reports.sample import EPOCH_S
from elastic_training.table import ABSENT, CANDIDATE, FULL, RELEASED, Table

_STATES = {ABSENT: "absent", FULL: "row", RELEASED: "released", CANDIDATE: "candidate"}


@dataclass(frozen=True)
class Explanation:
    """What a table knows of a key; `print` shows it as sentences.

    Attributes
    ----------
    table : str
    key : int or str
    state : {"row", "released", "candidate", "absent"}
        "released": all weights are zero, and their memory was given back. "candidate": counted, but without a row.
    count : int
        How often training has looked the key up; 0 if neither table nor filter know it. Of a key that only a sketch
        counts, its estimate: it may have counted another key with it.
    missing : int
        How many more occurrences would admit the key now; 0 if it has a row.
    last_touch : datetime or None
        When training last looked the key up, in UTC; None if the table does not know the time.
    norm : float
        L2 norm of the weights that lookups read, which are those of the default row for keys without one.
    admission : str
        Why the key has a row, or has none.
    eviction : str
        When a sweep evicts the row; "" for keys without one.
    """

    table: str
    key: int | str
    state: str
    count: int
    missing: int
    last_touch: datetime.datetime | None
    norm: float
    admission: str
    eviction: str

    def to_json(self) -> dict[str, Any]:
        touch = None if self.last_touch is None else self.last_touch.isoformat()
        return {**dataclasses.asdict(self), "last_touch": touch}

    def __str__(self) -> str:
        lines = [f"table {self.table!r}, key {self.key!r}: {self.admission}"]
        if self.last_touch is not None:
            lines.append(
                f"last met by training at {self.last_touch:%Y-%m-%d %H:%M:%S} UTC, {self.count:,} times in all"
            )
        lines.append(f"lookups read weights of norm {self.norm:.4g}")
        if self.eviction:
            lines.append(self.eviction)
        return "\n".join(lines)


def explain(table: Any, key: Any) -> Explanation:
    """Explain whether a key has a row, and why.

    Parameters
    ----------
    table : Table, or layer with one table
    key : int, str or bytes, or a scalar tensor of them
        As the layer gets it.

    Returns
    -------
    Explanation

    Raises
    ------
    ValueError
        If the key is not of the kind of the table's keys, or the layer has no table or several.
    """
    table = _only_table(table)
    key = _checked(table, key)
    rows = table.read([key])
    touch, count, kind = (int(number) for number in rows.meta.numpy()[0])
    norm = float(np.linalg.norm(rows.weights.numpy()[0]))
    last = datetime.datetime.fromtimestamp(touch + EPOCH_S, datetime.UTC) if touch else None
    has_row = kind in (FULL, RELEASED)
    known = None if has_row else _known(table, key)
    if known is not None and known.counted:
        kind, count = CANDIDATE, known.counted
    return Explanation(
        table=table.name,
        key=key,
        state=_STATES[kind],
        count=count,
        missing=known.missing if known is not None else 0,
        last_touch=last,
        norm=norm,
        admission=_of_row(kind, count) if known is None else _of_refusal(table, known),
        eviction=_eviction(table, count, touch, norm) if has_row else "",
    )


def _only_table(given: Any) -> Table:
    if isinstance(given, Table):
        return given
    if isinstance(getattr(given, "_group", None), CompressedGroup):
        raise ValueError(f"explain: keys of {type(given).__name__} have no rows of their own, expected another layer")
    tables = list(getattr(given, "tables", {}).values())
    if len(tables) != 1:
        names = ", ".join(repr(table.name) for table in tables)
        found = f"{len(tables)} tables ({names})" if tables else "no table"
        hint = f": explain(layer.tables[{tables[0].name!r}], key)" if tables else ""
        raise ValueError(f"explain: {type(given).__name__} has {found}, expected a Table, or a layer with one{hint}")
    only: Table = tables[0]
    return only


def _checked(table: Table, key: Any) -> int | str:
    """Return an integer key as the int64 of its bits, and a string key as str."""
    strings = table.key_dtype == "string"
    if tf.is_tensor(key) and key.shape.rank == 0:
        key = key.numpy()
    if isinstance(key, np.ndarray) and key.ndim == 0:
        key = key.item()
    if strings and isinstance(key, (str, bytes)):
        return key.decode(errors="surrogateescape") if isinstance(key, bytes) else key
    if not strings and isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        number = int(key)
        if -(2**63) <= number < 2**64:
            return number - 2**64 if number >= 2**63 else number
    kind = "a string" if strings else "a 64-bit integer"
    raise ValueError(f"explain: table {table.name!r}: key {key!r}, expected {kind}")


def _of_row(kind: int, count: int) -> str:
    if kind == RELEASED:
        return "it has a row whose weights are all zero; group lasso gave their memory back"
    return "it has a row" if count else "it has a row, which was loaded or inserted; training has not met it"


@dataclass(frozen=True)
class _Known:
    """What admission knows of a key without a row; see ElasticTableEstimateAdmission."""

    counted: int
    admits_at: int
    draw: float

    @property
    def missing(self) -> int:
        return max(self.admits_at - self.counted, 1)


def _known(table: Table, key: int | str) -> _Known:
    counted, admits_at, draw = ops().elastic_table_estimate_admission(table.handle, tf.constant([key], table.key_dtype))
    return _Known(int(counted[0]), int(admits_at[0]), float(draw[0]))


def _of_refusal(table: Table, known: _Known) -> str:
    filter_ = table.settings.admission
    evicted = int(table.stats()["evicted"])
    before = f"; the table has evicted {evicted:,} rows, perhaps this one" if evicted else ""
    if isinstance(filter_, AlwaysAdmit):
        return f"it has no row: training has not met it{before}"
    in_sketch = isinstance(filter_, CountingFilter) or (isinstance(filter_, PoissonFilter) and filter_.expected_keys)
    threshold: int = filter_.threshold  # type: ignore[attr-defined]
    if not known.counted:
        forgotten = "its count has aged or made room for another" if in_sketch else "not since it was evicted"
        return f"it has no row: training has not met it, or {forgotten}; {threshold} occurrences admit it{before}"
    counted = f"counted about {known.counted} in a sketch" if in_sketch else f"counted {known.counted}"
    text = f"it has no row: {counted} of the {threshold} occurrences that admit it, {known.missing} missing"
    if known.admits_at < threshold:
        text += f", since at {known.admits_at} it will probably reach {threshold}"
    if known.draw:
        text += f"; the next one admits it with probability {known.draw:.2g}"
    return text + (before if in_sketch else "")


def _eviction(table: Table, count: int, touch: int, norm: float) -> str:
    """Say when a sweep evicts a row, by the strategy of the table."""
    strategy = table.settings.eviction
    if strategy is None:
        return "the table evicts nothing"
    idle_s = max(time.time() - EPOCH_S - touch, 0.0)
    rule = _RULES[type(strategy)](strategy, count, idle_s, norm)
    limits = [trigger for trigger in strategy.triggers if hasattr(trigger, "limit")]
    also = "; while the table is above its limit, rows with the lowest values leave too" if limits else ""
    if limits and all(isinstance(trigger, Rows) for trigger in limits):
        also = f"; above {min(trigger.limit for trigger in limits):,} rows, those with the lowest values leave too"
    return rule + also


def _span(seconds: float) -> str:
    """Return a time in the largest unit of which it has at least one."""
    for unit, size in (("days", DAY_S), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _ttl(strategy: Any, count: int, idle_s: float, norm: float) -> str:
    left = strategy.days * DAY_S - idle_s
    if left < 0:
        return f"the next sweep evicts it: not met for {_span(idle_s)}, kept for {_span(strategy.days * DAY_S)}"
    return f"evicted in {_span(left)}, unless training meets it before"


def _count_decay(strategy: Any, count: int, idle_s: float, norm: float) -> str:
    half_life_s = strategy.half_life_days * DAY_S
    value = count * 2 ** (-idle_s / half_life_s)
    if value < strategy.minimum:
        return f"the next sweep evicts it: its decayed count is {value:.3g}, below {strategy.minimum:g}"
    if not strategy.minimum:
        return f"its decayed count is {value:.3g}, and no count is too low"
    left_s = math.log2(value / strategy.minimum) * half_life_s
    return f"its decayed count is {value:.3g}; evicted in {_span(left_s)}, unless training meets it before"


def _l2_norm(strategy: Any, count: int, idle_s: float, norm: float) -> str:
    if norm < strategy.minimum:
        return f"the next sweep evicts it: its norm is {norm:.3g}, below {strategy.minimum:g}"
    return f"kept while its norm, {norm:.3g}, is at least {strategy.minimum:g}"


def _score(strategy: Any, count: int, idle_s: float, norm: float) -> str:
    decayed = count * 2 ** (-idle_s / (strategy.half_life_days * DAY_S))
    value = strategy.count * math.log1p(decayed) + strategy.norm * norm
    if value < strategy.minimum:
        return f"the next sweep evicts it: its score is {value:.3g}, below {strategy.minimum:g}"
    return f"kept while its score, {value:.3g}, is at least {strategy.minimum:g}"


# The values are those of src/eviction/strategy.cc.
_RULES: dict[type[Any], Callable[[Any, int, float, float], str]] = {
    Ttl: _ttl,
    CountDecay: _count_decay,
    L2Norm: _l2_norm,
    Score: _score,
}
