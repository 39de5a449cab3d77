# SPDX-License-Identifier: Apache-2.0
"""Embeddings of fixed size for Keras 3: each key has a few rows of a small table."""

from __future__ import annotations

from typing import Any

import keras

from elastic_training.layers.compressed_parts import BinaryCodeParts, MultiHashParts
from elastic_training.layers.keras_trap import KerasTrap, output_spec
from elastic_training.layers.shared_tables import PACKAGE


class _Compressed(KerasTrap):
    """What both layers have besides CompressedParts."""

    def compute_output_spec(self, inputs: Any, weights: Any = None, mask: Any = None, training: Any = None) -> Any:
        self._note_kinds({"keys": inputs})
        shape = self.compute_output_shape(inputs.shape)  # type: ignore[attr-defined]
        return output_spec(inputs, shape, self.compute_dtype)  # type: ignore[attr-defined]


@keras.saving.register_keras_serializable(package=PACKAGE)
class BinaryCodeEmbedding(BinaryCodeParts, _Compressed, keras.layers.Layer):
    """Look up a row for each block of the bits of a key's hash, and add or concatenate these rows.

    With `bits` well above the logarithm of their number, almost all keys have a code of their own, although the table
    has few rows: four blocks of 13 bits give 2^52 codes to 32,768 rows.

    Parameters
    ----------
    dim : int
        Number of columns of the output.
    bits : int
        Length of the code; at most 64.
    blocks : int
        Number of blocks, and so of rows that a key has.
    cut : {"succession", "skip"}
        Whether a block has bits that follow each other, or every `blocks`-th one.
    fuse : {"sum", "concat"}
        How the rows become one; for "concat", `dim` is a multiple of `blocks`.
    hash_seed : int
        Layers with different ones have different codes.
    optimizer, embeddings_initializer, combiner, mask_zero, seed : as of HashEmbedding

    Examples
    --------
    >>> user = BinaryCodeEmbedding(16, bits=52, blocks=4, optimizer=Adagrad(0.05))(user_id)

    Notes
    -----
    Source: Yan et al., "Binary Code based Hash Embedding for Web-scale Applications", CIKM 2021.
    """

    _saving = keras.saving


@keras.saving.register_keras_serializable(package=PACKAGE)
class MultiHashEmbedding(MultiHashParts, _Compressed, keras.layers.Layer):
    """Look up a row for each of several hashes of a key, or for its quotient and its remainder, and combine these rows.

    Parameters
    ----------
    dim : int
        Number of columns of the output.
    code : Hashes or QuotientRemainder
        How keys become rows.
    combine : {"add", "mul", "concat"}
        How the rows become one; for "concat", `dim` is a multiple of their number.
    optimizer, embeddings_initializer, combiner, mask_zero, seed : as of HashEmbedding

    Examples
    --------
    >>> user = MultiHashEmbedding(16, Hashes(50_000, count=2), optimizer=Adagrad(0.05))(user_id)
    >>> item = MultiHashEmbedding(16, QuotientRemainder(1_000, 1_000), combine="mul")(item_id)

    Notes
    -----
    Factors of a product begin near 1 rather than near 0: give `embeddings_initializer`.
    """

    _saving = keras.saving
