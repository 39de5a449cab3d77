# SPDX-License-Identifier: Apache-2.0
"""FrequencyEmbedding for Keras 3: rare keys have fewer columns."""

from __future__ import annotations

from typing import Any

import keras

from elastic_training.layers.frequency_parts import FrequencyEmbeddingParts
from elastic_training.layers.hash_embedding import HashEmbedding
from elastic_training.layers.keras_trap import ShapesWithoutKeys, output_spec
from elastic_training.layers.shared_tables import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
class FrequencyEmbedding(FrequencyEmbeddingParts, ShapesWithoutKeys, keras.layers.Layer):
    """Look up rows whose number of columns grows with the frequency of their key.

    Columns that a key does not have yet are zero, so all rows are as long as the longest. Each block of columns is a
    table: a key gets a row of a later block when training has met it often enough, as the first block counts.

    Parameters
    ----------
    dims : {int: int}
        Number of columns: number of occurrences from which on a key has them; {4: 1, 8: 20, 16: 200}.
    optimizer, evict, embeddings_initializer, mask_zero, seed, tiers : as of HashEmbedding
        Under group lasso each block is a group.
    admit : as of HashEmbedding
        Which keys get the first columns.

    Examples
    --------
    >>> user = FrequencyEmbedding({4: 1, 8: 20, 16: 200}, optimizer=Adagrad(0.05))(user_id)

    Notes
    -----
    Source: Dynamic-dimension Embedding Variable of DeepRec, where the caller has to count.
    """

    _block = HashEmbedding
    supports_jit = False

    def compute_output_spec(self, inputs: Any, training: Any = None) -> Any:
        if getattr(inputs, "ragged", False) or getattr(inputs, "sparse", False):
            raise ValueError(f"{self._owner}: keys are ragged or sparse, expected a dense tensor")
        for block in self.blocks:
            block.compute_output_spec(inputs)
        return output_spec(inputs, self.compute_output_shape(inputs.shape), self.compute_dtype)
