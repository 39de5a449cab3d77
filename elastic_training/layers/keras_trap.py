# SPDX-License-Identifier: Apache-2.0
"""The trap of layers for Keras 3, which checks the optimizers that take its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from elastic_training.layers.shared_tables import PACKAGE, SharedTable
from elastic_training.layers.trap import TrapState

keras.saving.register_keras_serializable(package=PACKAGE)(SharedTable)


class _Trap(keras.Variable):
    """A scalar that stays zero.

    Optimizers of Keras ask each variable whether its gradient overwrites it, before they use the gradient. That is when
    the trap checks them.
    """

    def __init__(self, state: TrapState) -> None:
        super().__init__(initializer="zeros", shape=(), dtype="float32", trainable=True, autocast=False, name="trap")
        self._state = state

    @property
    def overwrite_with_gradient(self) -> bool:
        self._state.check_applying()
        return False


class ShapesWithoutKeys:
    """A mixin of layers for Keras 3: Keras may ask for shapes alone.

    To build a model of a class of the user from a file, Keras calls it with placeholders of float32, since it knows
    shapes of inputs but not their dtypes. Tables are then made when the file or the first call tells the kind of keys.
    """

    def __call__(self, inputs: Any, *arguments: Any, **options: Any) -> Any:
        if any(type(keys).__module__.startswith("tf_keras.") for keys in tf.nest.flatten(inputs)):
            name = type(self).__name__
            raise ValueError(f"{name} {self.name!r}: input of tf-keras, expected et.tf_keras.{name}")  # type: ignore[attr-defined]
        dtypes = {tf.as_dtype(keys.dtype) for keys in tf.nest.flatten(inputs) if tf.is_tensor(keys)}
        if not (in_symbolic_scope() and any(dtype.is_floating for dtype in dtypes)):
            return super().__call__(inputs, *arguments, **options)  # type: ignore[misc]
        if not self.built:  # type: ignore[attr-defined]
            self.build(None)  # type: ignore[attr-defined]
        shapes = self.compute_output_shape(tf.nest.map_structure(lambda keys: tuple(keys.shape), inputs))  # type: ignore[attr-defined]
        if isinstance(shapes, Mapping):
            return {name: self._zeros(inputs[name], shape) for name, shape in shapes.items()}
        return self._zeros(inputs, shapes)

    def _zeros(self, keys: Any, shape: Any) -> tf.Tensor:
        """Return zeros of a shape whose unknown parts are those of the keys."""
        known = tf.unstack(tf.shape(keys))
        sizes = [known[axis] if size is None else size for axis, size in enumerate(shape)]
        rows = tf.zeros(sizes, self.compute_dtype)  # type: ignore[attr-defined]
        rows.set_shape(shape)
        return rows


class KerasTrap(ShapesWithoutKeys):
    """What layers for Keras 3 have besides LayerParts."""

    _group: Any
    # XLA has no kernels of the ops; compile(jit_compile="auto") therefore compiles nothing.
    supports_jit = False

    def build(self, input_shape: Any) -> None:
        self.trap = _Trap(self._group.state)
        self.built = True

    def _note_kinds(self, inputs: Mapping[str, Any]) -> None:
        self._group.prepare({name: keys.dtype for name, keys in inputs.items()})


def output_spec(keys: Any, shape: tuple[int | None, ...], dtype: Any) -> keras.KerasTensor:
    """Return the symbolic output of a feature with symbolic keys."""
    ragged = bool(getattr(keys, "ragged", False)) and len(shape) > 2
    return keras.KerasTensor(shape, dtype=dtype, ragged=ragged)
