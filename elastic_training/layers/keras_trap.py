# SPDX-License-Identifier: Apache-2.0
"""The trap of layers for Keras 3, which checks the optimizers that take its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

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


class KerasTrap:
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
