# SPDX-License-Identifier: Apache-2.0
"""How far a model has learned from its streams."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="elastic_training")
class StreamOffsets(keras.layers.Layer):
    """Remember the offset of the last batch that was learned from each partition of a stream.

    The offset travels with the batch, and the step that learns from it stores it in a weight of this layer. So it is in
    every checkpoint, of the same instant as rows and variables, and batches that were only prefetched do not count.

    A partition's batches must be learned in their order: by one thread, if several train.

    Parameters
    ----------
    partitions : int

    Examples
    --------
    >>> offsets = et.StreamOffsets()
    >>> stream = offsets.number(batches.skip(offsets.next(0))).prefetch(8)   # ({..., "stream_offset": o}, labels)
    >>> x = offsets(x, inputs["stream_offset"])   # in the model; returns x as it is
    """

    supports_jit = True

    def __init__(self, partitions: int = 1, **options: Any) -> None:
        super().__init__(**options)
        if not isinstance(partitions, int) or partitions < 1:
            raise ValueError(f"StreamOffsets {self.name!r}: partitions is {partitions!r}, expected at least 1")
        self.partitions = partitions
        self._next = self.add_weight(
            name="next", shape=(partitions,), dtype="int64", initializer="zeros", trainable=False
        )
        self.supports_masking = True

    def build(self, *_: Any) -> None:
        self.built = True

    def next(self, partition: int) -> int:
        """Return the offset of the first element of a partition that was not learned."""
        return int(self._next.numpy()[partition])

    def call(self, inputs: Any, offsets: Any, training: Any = None) -> Any:
        """Return `inputs`, and in training remember offsets.

        Parameters
        ----------
        inputs : tensors
        offsets : tensor [..., 2] int64
            Partition, and the offset after its last element in this batch.
        training : bool or None
        """
        if training:
            pairs = tf.reshape(tf.cast(offsets, tf.int64), [-1, 2])
            # Integers outside of the partitions are an error of this op.
            merged = tf.tensor_scatter_nd_max(tf.convert_to_tensor(self._next), pairs[:, :1], pairs[:, 1])
            self._next.assign(merged)
        return inputs

    def compute_output_spec(self, inputs: Any, offsets: Any, training: Any = None) -> Any:
        return keras.tree.map_structure(lambda tensor: keras.KerasTensor(tensor.shape, tensor.dtype), inputs)

    def number(self, batches: tf.data.Dataset, partition: int = 0, key: str = "stream_offset") -> tf.data.Dataset:
        """Add its offset to each batch: the number of batches up to and with it.

        Parameters
        ----------
        batches : Dataset of dicts, or of tuples that begin with one
            It begins where `next(partition)` says: pass `batches.skip(offsets.next(partition))`.
        key : str
            Name of the new element: int64 [1, 2].

        Returns
        -------
        Dataset
        """
        first = tf.constant(self.next(partition), tf.int64)

        def add(position: tf.Tensor, element: Any) -> Any:
            inputs, *others = element if isinstance(element, tuple) else (element,)
            if not isinstance(inputs, dict):
                what = f"elements begin with {type(inputs).__name__}"
                raise ValueError(f"StreamOffsets {self.name!r}: {what}, expected a dict of tensors")
            offset = tf.reshape(tf.stack([tf.constant(partition, tf.int64), position + 1]), [1, 2])
            numbered = {**inputs, key: offset}
            return (numbered, *others) if others else numbered

        return batches.enumerate(first).map(add)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "partitions": self.partitions}
