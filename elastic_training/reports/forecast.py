# SPDX-License-Identifier: Apache-2.0
"""What admission settings would cost in memory and keep in keys, found in one pass over a dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from elastic_training.admission import Admission, AlwaysAdmit, CountFilter, CountingFilter, PoissonFilter
from elastic_training.layers.observers import observe
from elastic_training.reports.text_table import text_table
from elastic_training.reports.tier_split import split_rows
from elastic_training.reports.trial_table import TrialTable

AS_CONFIGURED, EVERY_KEY = "as configured", "every key"
SETTINGS: Mapping[str, Admission] = {
    EVERY_KEY: AlwaysAdmit(),
    "2 occurrences": CountFilter(2),
    "5 occurrences": CountFilter(5),
    "probably 5 occurrences": PoissonFilter(5),
}


@dataclass(frozen=True)
class SettingForecast:
    """What one admission setting would do with one table.

    Attributes
    ----------
    table, setting : str
    admission : Admission
    keys : float
        Distinct keys of the dataset.
    occurrences : float
        Key occurrences of the dataset.
    rows, candidates : float
        Keys with a row, and keys that the table counts without one.
    trained_share : float
        Share of the occurrences that had a row when they came.
    rare_rows : float
        Rows of keys with fewer occurrences than `frequent`.
    frequent_without_row : float
        Keys with at least `frequent` occurrences and no row.
    bytes : float [bytes]
        Memory of rows with the slots of the table's optimizer, candidates, the index and the filter; with `et.Tiers`,
        of the rows on SSD only what stays in memory.
    ssd_rows, ssd_bytes : float
        Rows on SSD, and the most space of their files [bytes]; 0 without `et.Tiers`.
    problem : str
        Why training would end with an error: keys and index do not fit into memory, or rows not on the SSD. "" if it
        would not.
    """

    table: str
    setting: str
    admission: Admission
    keys: float
    occurrences: float
    rows: float
    candidates: float
    trained_share: float
    rare_rows: float
    frequent_without_row: float
    bytes: float
    ssd_rows: float = 0.0
    ssd_bytes: float = 0.0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "admission": self.admission.to_config()}


@dataclass(frozen=True)
class Forecast:
    """The forecasts of all tables and settings; `print` shows them as a table.

    Attributes
    ----------
    settings : tuple of SettingForecast
    sample : float
        Share of the keys that was followed; numbers are divided by it.
    frequent : int
        Number of occurrences from which a key is called frequent.
    """

    settings: tuple[SettingForecast, ...]
    sample: float
    frequent: int

    def of(self, table: str, setting: str) -> SettingForecast:
        """Return the forecast of one setting of a table."""
        for one in self.settings:
            if (one.table, one.setting) == (table, setting):
                return one
        known = sorted({(one.table, one.setting) for one in self.settings})
        raise KeyError(f"forecast of {(table, setting)}, expected one of {known}")

    def to_json(self) -> dict[str, Any]:
        settings = [one.to_json() for one in self.settings]
        return {"sample": self.sample, "frequent": self.frequent, "settings": settings}

    def __str__(self) -> str:
        tiered = any(one.ssd_rows or one.problem for one in self.settings)
        rare, missed = f"rows of keys < {self.frequent}", f"keys >= {self.frequent} without"
        lines: list[tuple[str, ...]] = [
            (
                "table",
                "setting",
                "keys",
                "rows",
                "candidates",
                "trained",
                rare,
                missed,
                "MB",
                *(("SSD rows", "SSD MB") if tiered else ()),
            )
        ]
        for one in self.settings:
            counts = [f"{number:,.0f}" for number in (one.keys, one.rows, one.candidates)]
            others = [f"{number:,.0f}" for number in (one.rare_rows, one.frequent_without_row)]
            share, size = f"{one.trained_share:.1%}", f"{one.bytes / 1e6:,.2f}"
            ssd = (f"{one.ssd_rows:,.0f}", f"{one.ssd_bytes / 1e6:,.2f}") if tiered else ()
            lines.append((one.table, one.setting, *counts, share, *others, size, *ssd))
        problems = [f"{one.table}, {one.setting}: {one.problem}" for one in self.settings if one.problem]
        return "\n".join([text_table(lines, names=2), *problems])


def forecast(
    dataset: Iterable[Any],
    model: Any,
    settings: Mapping[str, Admission] | None = None,
    *,
    sample: float = 1.0,
    frequent: int = 5,
) -> Forecast:
    """Pass over a dataset once, and say what admission settings would cost and keep.

    The model computes each batch as in inference, which writes nothing; the keys that its layers look up pass through
    one native table per setting, of one column and without slots. So the numbers are those of a training pass over the
    same batches, apart from eviction and from rows that group lasso makes zero.

    Parameters
    ----------
    dataset : iterable
        Batches as `fit` takes them: the inputs, or tuples whose first element they are.
    model : callable
        A Keras model, layer or tf.Module with layers of this package.
    settings : {label: Admission} or None
        Settings to compare, in addition to "as configured", the one of each table, and "every key"; None: SETTINGS.
    sample : float
        Share of the keys to follow, in (0, 1], chosen by their hashes. With 0.01 the pass takes a hundredth of the
        memory, and a number of n keys has a standard error of 10 √n.
    frequent : int
        Number of occurrences from which a key is called frequent.

    Returns
    -------
    Forecast

    Raises
    ------
    ValueError
        If the model looks up no keys, or `sample` is not in (0, 1].

    Notes
    -----
    Filters are unchanged by sampling, because all their positions and sizes shrink alike. Sketches that age by time age
    during the pass by the time that the pass takes.
    """
    if not 0 < sample <= 1:
        raise ValueError(f"forecast: sample is {sample!r}, expected a number above 0 and at most 1")
    compared = {EVERY_KEY: AlwaysAdmit(), **(SETTINGS if settings is None else settings)}
    followed: dict[int, _FollowedTable] = {}

    def meet(table: Any, keys: tf.Tensor, mask_zero: bool) -> None:
        if id(table) not in followed:
            followed[id(table)] = _FollowedTable(table, {AS_CONFIGURED: table.settings.admission, **compared}, sample)
        followed[id(table)].meet(keys, mask_zero)

    eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        with observe(meet):
            for batch in dataset:
                model(batch[0] if isinstance(batch, tuple) else batch)
    finally:
        tf.config.run_functions_eagerly(eager)
    if not followed:
        raise ValueError("forecast: the model looked up no keys, expected a dataset with batches and elastic layers")
    return Forecast(tuple(one for table in followed.values() for one in table.result(frequent)), sample, frequent)


class _FollowedTable:
    """A table of the model, and the trial of each setting."""

    def __init__(self, table: Any, settings: Mapping[str, Admission], sample: float) -> None:
        self._table, self._settings, self._sample = table, settings, sample
        config = table.settings
        self._trials = {
            label: TrialTable(_scaled(setting, sample), config.key, config.seed) for label, setting in settings.items()
        }

    def meet(self, keys: tf.Tensor, mask_zero: bool) -> None:
        if mask_zero:
            keys = tf.boolean_mask(keys, keys != ("" if keys.dtype == tf.string else 0))
        if self._sample < 1:
            keys = tf.boolean_mask(keys, _hash_fraction(keys) < self._sample)
        for trial in self._trials.values():
            trial.meet(keys)

    def result(self, frequent: int) -> list[SettingForecast]:
        all_keys = self._trials[EVERY_KEY].keys()
        counts, _ = self._trials[EVERY_KEY].counts_of(all_keys)
        row_bytes = self._table.stats()["row_bytes"]
        results = []
        for label, trial in self._trials.items():
            _, has_row = trial.counts_of(all_keys)
            stats = trial.stats()
            rows, filter_bytes = int(has_row.sum()), stats["filter_bytes"]
            # The index, candidates and bytes of strings are those of the trial; its rows are exchanged for real ones.
            used = stats["used_bytes"] - filter_bytes + rows * (row_bytes - stats["row_bytes"])
            config, all_bytes = self._table.settings, (used + filter_bytes) / self._sample
            split = split_rows(config.tiers, config.key, all_bytes, rows / self._sample, row_bytes)
            results.append(
                SettingForecast(
                    table=config.name,
                    setting=label,
                    admission=self._settings[label],
                    keys=counts.size / self._sample,
                    occurrences=trial.occurrences / self._sample,
                    rows=rows / self._sample,
                    candidates=stats["candidates"] / self._sample,
                    trained_share=trial.trained / max(trial.occurrences, 1),
                    rare_rows=float((has_row & (counts < frequent)).sum()) / self._sample,
                    frequent_without_row=float((~has_row & (counts >= frequent)).sum()) / self._sample,
                    bytes=split.bytes,
                    ssd_rows=split.ssd_rows,
                    ssd_bytes=split.ssd_bytes,
                    problem=split.problem,
                )
            )
        return results


def _scaled(admission: Admission, sample: float) -> Admission:
    """Return the filter for a stream that has this share of the keys."""
    if sample == 1:
        return admission
    if isinstance(admission, CountingFilter):
        expected, half_life = _scaled_whole(admission.expected_keys, sample), admission.half_life_occurrences
        half_life = None if half_life is None else half_life * sample
        return dataclasses.replace(admission, expected_keys=expected, half_life_occurrences=half_life)
    if isinstance(admission, PoissonFilter):
        sizes = {name: _scaled_whole(getattr(admission, name), sample) for name in ("horizon", "expected_keys")}
        return dataclasses.replace(admission, **sizes)
    return admission


def _scaled_whole(number: int | None, sample: float) -> Any:
    return None if number is None else max(round(number * sample), 1)


def _hash_fraction(keys: tf.Tensor) -> tf.Tensor:
    """Return a number in [0, 1) for each key [n] float64, which depends on the key alone."""
    if keys.dtype == tf.string:
        buckets = 2**31 - 1
        return tf.cast(tf.strings.to_hash_bucket_fast(keys, buckets), tf.float64) / buckets
    # Another mixing than that of tables, whose hashes order their rows.
    bits = keys.numpy().view(np.uint64) ^ np.uint64(0xD6E8FEB86659FD93)
    for _ in range(2):
        bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return tf.constant((bits >> np.uint64(11)).astype(np.float64) / 2**53)
