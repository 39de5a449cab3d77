# SPDX-License-Identifier: Apache-2.0
"""Find the tables and weights of a model, of whatever kind, always in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from elastic_training.table import Table


def objects_of(model: Any) -> Iterator[Any]:
    """Yield a model and all layers and modules in it, each once."""
    seen: set[int] = set()

    def visit(value: Any) -> Iterator[Any]:
        if id(value) in seen:
            return
        if isinstance(value, Mapping):
            children = list(value.values())
        elif isinstance(value, (list, tuple)):
            children = list(value)
        elif hasattr(value, "_flatten_layers"):
            # A layer of Keras 3 or of tf-keras.
            layers = list(value._flatten_layers(include_self=False, recursive=False))
            seen.add(id(value))
            yield value
            children = layers
        elif isinstance(value, tf.Module):
            seen.add(id(value))
            yield value
            children = [child for _, child in sorted(vars(value).items())]
        else:
            return
        for child in children:
            yield from visit(child)

    yield from visit(model)


def tables_of(model: Any) -> list[Table]:
    """Return the tables of all layers of a model, each once.

    A table exists once its layer has seen keys.
    """
    found: dict[int, Table] = {}
    for part in objects_of(model):
        tables = getattr(part, "tables", None)
        if isinstance(tables, Mapping):
            for table in tables.values():
                if isinstance(table, Table):
                    found.setdefault(id(table), table)
    return list(found.values())


def weights_of(model: Any) -> list[tf.Variable]:
    """Return the weights of a model, without metrics and random seeds."""
    weights = getattr(model, "weights", None)
    if not isinstance(weights, (list, tuple)):
        weights = model.variables
    return [getattr(weight, "value", weight) if _is_keras(weight) else weight for weight in weights]


def _is_keras(weight: Any) -> bool:
    """Whether a weight is a variable of Keras 3, whose `value` is that of TensorFlow."""
    return not isinstance(weight, tf.Variable) and isinstance(getattr(weight, "value", None), tf.Variable)
