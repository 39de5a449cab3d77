# SPDX-License-Identifier: Apache-2.0
"""Rows of tables in `.keras` and `.weights.h5` files of Keras: arrays of the layer, some megabytes each.

Keras lets a layer write arrays into the file of weights, and only there if nothing but weights is saved. So rows are
inside, some megabytes at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from elastic_training.checkpoints.cut import Cut, Keys, Restoring, Rows, check, to_json
from elastic_training.table import Table

_PREFIX = "table_"


def save_tables(tables: Mapping[str, Table], store: Any) -> None:
    """Write the rows of tables, all of one instant, into a store of Keras."""
    cut = Cut(list(tables.values()))
    try:
        for position in range(len(cut.tables)):
            name = f"{_PREFIX}{position}"
            parts = 0
            for parts, rows in enumerate(cut.rows(position), 1):
                part = f"{name}_{parts - 1:05}"
                store[f"{part}_keys"] = rows.keys.numbers
                if len(rows.keys.lengths):
                    store[f"{part}_lengths"] = rows.keys.lengths
                    store[f"{part}_texts"] = np.frombuffer(rows.keys.texts, np.uint8)
                store[f"{part}_values"] = rows.values
                store[f"{part}_meta"] = rows.meta
            store[f"{name}_filter"] = np.frombuffer(cut.filter(position), np.uint8)
            description = {**cut.describe(position), "parts": parts}
            store[f"{name}_description"] = np.frombuffer(to_json(description), np.uint8)
    finally:
        cut.end(succeeded=True)


def file_of(store: Any) -> str:
    """Return what messages call the file of a store: its path, if Keras tells it."""
    path = getattr(getattr(store, "h5_file", None), "filename", None)
    return str(path) if isinstance(path, str) else "the file"


def variables_of(store: Any) -> dict[str, Any]:
    """Return what a store has besides tables."""
    return {name: store[name] for name in store.keys() if not name.startswith(_PREFIX)}  # noqa: SIM118


def load_tables(group: Any, store: Any, *, one_table: bool) -> None:
    """Take over what save_tables wrote; tables that the layer did not have yet are made.

    Parameters
    ----------
    group : FeatureGroup or CompressedGroup
    store : what Keras gives to load_own_variables
    one_table : bool
        The layer has one table, which takes the rows over whatever table's they were.

    Raises
    ------
    ValueError
        If a table is missing, or has another dimension, kind of keys or optimizer; nothing has changed then.
    """
    names = sorted(name for name in store.keys() if name.startswith(_PREFIX) and name.endswith("_description"))  # noqa: SIM118
    found = {name.removesuffix("_description"): json.loads(np.asarray(store[name]).tobytes()) for name in names}
    saved = {description["name"]: name for name, description in found.items()}
    names = group.table_names()
    if one_table and len(saved) == 1:
        # Keras has found the layer by its place; the name may be one that Keras gave.
        saved = dict(zip(names, saved.values(), strict=True))
    # A layer that has seen no keys yet has no table, and saves none.
    if not saved.keys() <= set(names) or not group.tables.keys() <= saved.keys():
        what = f"{file_of(store)} has tables {sorted(saved)}, expected {sorted(names)}"
        raise ValueError(f"{group.owner}: {what}")
    group.prepare_tables({name: found[source]["key"] for name, source in saved.items()})
    owner, tables = group.owner, {name: group.tables[name] for name in saved}
    for table_name, table in tables.items():
        check(table, found[saved[table_name]], owner)
    for table_name, table in tables.items():
        name = saved[table_name]
        restoring = Restoring(table, found[name], np.asarray(store[f"{name}_filter"]).tobytes())
        for number in range(found[name]["parts"]):
            part = f"{name}_{number:05}"
            lengths, texts = np.zeros(0, np.uint32), b""
            if found[name]["key"] == "string":
                lengths = np.asarray(store[f"{part}_lengths"])
                texts = np.asarray(store[f"{part}_texts"]).tobytes()
            keys = Keys(np.asarray(store[f"{part}_keys"]), lengths, texts)
            columns = found[name]["dim"] + found[name]["slots"]
            values = np.asarray(store[f"{part}_values"]).reshape(-1, columns)
            restoring.insert(Rows(keys, values, np.asarray(store[f"{part}_meta"])))
        restoring.end()


class TablesInStore:
    """A mixin of layers of either Keras: their weights files have the rows of their tables."""

    _group: Any
    _one_table: bool

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)  # type: ignore[misc]
        save_tables(self._group.tables, store)

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(variables_of(store))  # type: ignore[misc]
        load_tables(self._group, store, one_table=self._one_table)
