# SPDX-License-Identifier: Apache-2.0
"""Variables of models and optimizers, beside tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from elastic_training.checkpoints.files import Reader, Writer
from elastic_training.table import Table

_FILE = "dense.bin"


def parts_of(name: str, item: Any) -> dict[str, Any]:
    """Return an object, and the optimizer that a compiled model has, by name."""
    parts = {name: item}
    optimizer = getattr(item, "optimizer", None)
    if optimizer is not None and hasattr(optimizer, "variables"):
        parts[f"{name}.optimizer"] = optimizer
    return parts


def _variables(item: Any) -> list[Any]:
    if isinstance(item, Table):
        return []
    if isinstance(item, tf.Variable):
        return [item]
    variables = getattr(item, "variables", None)
    if variables is None:
        raise ValueError(
            f"checkpoint: {item!r} has no variables, expected a model, layer, optimizer, module or variable"
        )
    # Optimizers of older versions have a method.
    return list(variables() if callable(variables) else variables)


def _raw(variable: Any) -> tf.Variable:
    # The value of a variable of Keras 3 is a variable of TensorFlow.
    return variable if isinstance(variable, tf.Variable) else variable.value


def capture(objects: Mapping[str, Any]) -> dict[str, list[tf.Tensor]]:
    """Return the values of all variables now.

    Nothing is copied: TensorFlow gives a variable new memory if it changes while its value is in use.
    """
    return {name: [_raw(v).read_value() for v in _variables(item)] for name, item in objects.items()}


def write(writer: Writer, values: Mapping[str, list[tf.Tensor]]) -> dict[str, Any]:
    """Write values, and return what the manifest says of them: {object: [[dtype, shape], ...]}."""
    found: dict[str, Any] = {}
    writer.append(_FILE, b"")
    for name, tensors in values.items():
        found[name] = [[tensor.dtype.name, list(tensor.shape)] for tensor in tensors]
        for position, tensor in enumerate(tensors):
            if tensor.dtype in (tf.string, tf.resource, tf.variant):
                what = f"variable {position} of {name!r} is of type {tensor.dtype.name}"
                raise ValueError(f"checkpoint: {what}, expected numbers or booleans")
            writer.append(_FILE, np.atleast_1d(tensor.numpy()))
    return found


def prepare(objects: Mapping[str, Any], found: Mapping[str, Any], source: str) -> None:
    """Check that objects have the variables of a manifest; build optimizers of models that have none yet.

    Raises
    ------
    ValueError
        If an object is missing, or has other variables.
    """
    for name, variables in found.items():
        if name not in objects:
            raise ValueError(f"{source}: it has {name!r}, expected one of {', '.join(map(repr, objects))}")
        item = objects[name]
        if name.endswith(".optimizer") and not getattr(item, "built", True):
            item.build(objects[name.removesuffix(".optimizer")].trainable_variables)
        has = [[_raw(v).dtype.name, list(v.shape)] for v in _variables(item)]
        if len(has) != len(variables):
            what = f"{len(variables)} variables of {name!r} were saved, expected {len(has)}"
            raise ValueError(f"{source}: {what}; models and optimizers must be built before they are restored")
        for position, (one, other) in enumerate(zip(variables, has, strict=True)):
            if one != other:
                what = f"variable {position} of {name!r} is {one[0]} {one[1]}, expected {other[0]} {other[1]}"
                raise ValueError(f"{source}: {what}")


def restore(objects: Mapping[str, Any], found: Mapping[str, Any], reader: Reader) -> None:
    """Assign what was saved; `prepare` has passed."""
    data = reader.bytes_of(_FILE)
    offset = 0
    for name, variables in found.items():
        for variable, (dtype, shape) in zip(_variables(objects[name]), variables, strict=True):
            kind = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
            count = int(np.prod(shape, dtype=np.int64))
            value = np.frombuffer(data, np.uint8, count * kind.itemsize, offset).view(kind)
            _raw(variable).assign(value.reshape(shape))
            offset += count * kind.itemsize
