# SPDX-License-Identifier: Apache-2.0
"""The tables of models, and which of them takes over which table of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from elastic_training.checkpoints.cut import check
from elastic_training.table import Table


@dataclass(frozen=True)
class Place:
    """A table of an object that is saved.

    Attributes
    ----------
    table : Table
    object : str
        Name of the object to which the table belongs.
    automatic : bool
        Whether the name of the table is one that Keras gave to its layer. Such names depend on what the process has
        made before, so the table is found again by its place among those of the object.
    """

    table: Table
    object: str
    automatic: bool

    def describe(self) -> dict[str, Any]:
        return {"object": self.object, "automatic": self.automatic}


def _layers(item: Any) -> Iterator[Any]:
    yield item
    if hasattr(item, "_flatten_layers"):
        yield from item._flatten_layers(include_self=False)
    elif isinstance(item, tf.Module):
        yield from item.submodules


def _is_automatic(layer: Any, table: Table) -> bool:
    """Return whether a table has the name of its layer, or one made of it, and nobody chose that name."""
    # HashEmbeddingModule has the default name of HashEmbedding.
    kind = type(layer).__name__.removesuffix("Module")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
    name = str(getattr(layer, "name", ""))
    own = table.name == name or table.name.startswith(f"{name}_columns_")
    return own and re.fullmatch(rf"{re.escape(snake)}(_\d+)?", name) is not None


def places_of(objects: Mapping[str, Any]) -> list[Place]:
    """Return the tables that models, layers and modules use, each once, in the order of their layers.

    Raises
    ------
    ValueError
        If two tables have the same name.
    """
    found: dict[str, Place] = {}
    for name, item in objects.items():
        for layer in _layers(item):
            tables = {"": layer} if isinstance(layer, Table) else getattr(layer, "tables", None)
            for table in tables.values() if isinstance(tables, Mapping) else ():
                if not isinstance(table, Table):
                    continue
                place = Place(table, name, layer is not table and _is_automatic(layer, table))
                if found.setdefault(table.name, place).table is not table:
                    raise ValueError(f"checkpoint: two tables have the name {table.name!r}, expected different names")
    return list(found.values())


def match(places: Sequence[Place], found: Mapping[str, Mapping[str, Any]], source: str) -> dict[str, Table]:
    """Return which table takes over each table of a checkpoint.

    Tables with a name that somebody chose are found by it, the others by their place among those of their object.

    Parameters
    ----------
    places : sequence of Place
    found : {name: description}
        Tables of the checkpoint, in the order in which they were saved.
    source : str
        What messages call the checkpoint.

    Raises
    ------
    ValueError
        If a table of the checkpoint or of the model is left over, or has another dimension, kind of keys or optimizer.
    """
    chosen = {place.table.name: place.table for place in places if not place.automatic}
    matched = {name: chosen[name] for name, each in found.items() if not each.get("automatic") and name in chosen}
    taken = {id(table) for table in matched.values()}
    for owner in dict.fromkeys(
        [place.object for place in places] + [each.get("object", "") for each in found.values()]
    ):
        rest = [place for place in places if place.object == owner and id(place.table) not in taken]
        saved = [name for name, each in found.items() if each.get("object", "") == owner and name not in matched]
        fits = len(rest) == len(saved) and all(
            place.automatic or found[name].get("automatic") for place, name in zip(rest, saved, strict=True)
        )
        if not fits:
            raise ValueError(f"{source}: {_left_over(places, rest, saved)}")
        matched.update((name, place.table) for place, name in zip(rest, saved, strict=True))
    for name, table in matched.items():
        check(table, dict(found[name]), source)
    return matched


def _left_over(places: Sequence[Place], rest: list[Place], saved: list[str]) -> str:
    """Return what is wrong if tables of a checkpoint and of a model do not fit."""
    lacking = [place.table.name for place in rest]
    if not saved:
        return f"it has no table {lacking[0]!r}, which the model has"
    if not lacking:
        has = ", ".join(repr(place.table.name) for place in places)
        has = has or "none, because layers make tables when they first see keys"
        return f"it has table {saved[0]!r}, expected one of the model's: {has}"
    has = f"which the model has, but has {', '.join(map(repr, saved))}"
    return f"it has no table {lacking[0]!r}, {has}; expected the same layers in the same order, or the same names"
