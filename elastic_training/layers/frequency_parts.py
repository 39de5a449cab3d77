# SPDX-License-Identifier: Apache-2.0
"""Rows whose number of columns grows with the frequency of their key, for either Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from elastic_training.layers.feature import Feature
from elastic_training.layers.keys import as_keys
from elastic_training.layers.layer_parts import training_of
from elastic_training.table import Table

# Fields of Feature that the blocks have as the layer has them.
SETTINGS = ("optimizer", "admit", "evict", "embeddings_initializer", "mask_zero", "seed", "tiers")


def check_dims(owner: str, dims: Any) -> dict[int, int]:
    """Return {columns: occurrences} with integers; JSON makes strings of them.

    Raises
    ------
    ValueError
        If they do not both increase, or the first columns are not there from the first occurrence.
    """
    if not isinstance(dims, Mapping) or not dims:
        raise ValueError(f"{owner}: dims is {dims!r}, expected {{columns: occurrences}}")
    steps = {int(columns): int(occurrences) for columns, occurrences in dims.items()}
    columns, occurrences = list(steps), list(steps.values())
    if columns[0] < 1 or occurrences[0] != 1:
        raise ValueError(f"{owner}: dims begins with {{{columns[0]}: {occurrences[0]}}}, expected columns from 1 on")
    for values, what in ((columns, "columns"), (occurrences, "occurrences")):
        if sorted(set(values)) != values:
            raise ValueError(f"{owner}: {what} of dims are {values}, expected increasing numbers")
    return steps


class FrequencyEmbeddingParts:
    """FrequencyEmbedding, for either Keras; `_block` is its HashEmbedding."""

    _block: Any
    name: str
    trainable: bool

    def __init__(
        self,
        dims: Mapping[int, int],
        optimizer: Any = None,
        admit: Any = None,
        evict: Any = None,
        embeddings_initializer: Any = None,
        mask_zero: bool = False,
        seed: int | None = None,
        tiers: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._owner = f"FrequencyEmbedding {self.name!r}"
        self._dims = check_dims(self._owner, dims)
        columns = max(self._dims)
        self._feature = Feature(
            columns, optimizer, admit, evict, embeddings_initializer, mask_zero=mask_zero, seed=seed, tiers=tiers
        )
        if self._feature.mask_zero:
            self.supports_masking = True
        self.blocks = []
        first = 0
        for columns in self._dims:
            name = f"{self.name}_columns_{first}_{columns}"
            later = {} if first == 0 else {"admit": None}  # the number of occurrences admits to later blocks
            fields = {field: getattr(self._feature, field) for field in SETTINGS} | later
            self.blocks.append(self._block(columns - first, name=name, **fields))
            first = columns

    @property
    def dim(self) -> int:
        """Number of columns of the output."""
        return max(self._dims)

    @property
    def tables(self) -> dict[str, Table]:
        """Tables of the blocks of columns by name; they exist once the layer has seen keys."""
        return {name: table for block in self.blocks for name, table in block.tables.items()}

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> dict[str, Any]:
        # Keras 3 leaves layers in lists out of checkpoints of TensorFlow.
        children: dict[str, Any] = super()._trackable_children(save_type, **options)  # type: ignore[misc]
        if save_type == "checkpoint":
            children.update((f"block_{number}", block) for number, block in enumerate(getattr(self, "blocks", ())))
        return children

    def build(self, input_shape: Any) -> None:
        for block in self.blocks:
            if not block.built:
                block.build(None)
        self.built = True

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Return the rows of keys.

        Parameters
        ----------
        inputs : Tensor of integers or strings
        training : bool or None
            As of HashEmbedding.

        Returns
        -------
        Tensor [*keys, dim]
            Columns that a key does not have yet are zero.
        """
        if isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)):
            raise ValueError(f"{self._owner}: keys are {type(inputs).__name__}, expected a dense tensor")
        training = training_of(self._owner, training)
        if not self.trainable:
            training = False
        keys = as_keys(self._owner, inputs)
        rows = [self.blocks[0](keys, training=training)]
        if training is False:
            # Only keys that were frequent enough have rows in the other blocks.
            rows += [block(keys, training=False) for block in self.blocks[1:]]
        else:
            counts = self.blocks[0].table.counts(keys)
            for block, occurrences in zip(self.blocks[1:], list(self._dims.values())[1:], strict=True):
                rows.append(self._rows_where(counts >= occurrences, block, keys, training))
        return tf.concat(rows, axis=-1)

    @staticmethod
    def _rows_where(chosen: tf.Tensor, block: Any, keys: tf.Tensor, training: bool | None) -> tf.Tensor:
        """Return the block's rows of the keys that are chosen, and zeros for the others."""
        places = tf.where(chosen)
        rows = block(tf.gather_nd(keys, places), training=training)
        shape = tf.concat([tf.shape(keys, tf.int64), [block.dim]], axis=0)
        found = tf.scatter_nd(places, rows, shape)
        found.set_shape([*keys.shape, block.dim])
        return found

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*tuple(input_shape), self.dim)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return self.blocks[0].compute_mask(inputs, previous_mask)

    def get_config(self) -> dict[str, Any]:
        config = self._feature.to_config()
        own = {"dims": {str(columns): occurrences for columns, occurrences in self._dims.items()}}
        return {**super().get_config(), **own, **{name: config[name] for name in SETTINGS}}  # type: ignore[misc]

    def get_build_config(self) -> dict[str, Any]:
        """Return the kind of keys, with which the layer makes its tables again."""
        return {"kinds": self.blocks[0].get_build_config()["kinds"]}

    def build_from_config(self, config: dict[str, Any]) -> None:
        for block in self.blocks:
            block.build_from_config(config)
        self.build(None)
