# SPDX-License-Identifier: Apache-2.0
"""HashEmbedding for Keras 3: keras.layers.Embedding without a vocabulary."""

from __future__ import annotations

from typing import Any

import keras

from elastic_training.layers.keras_trap import KerasTrap, output_spec
from elastic_training.layers.layer_parts import HashEmbeddingParts
from elastic_training.layers.shared_tables import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
class HashEmbedding(HashEmbeddingParts, KerasTrap, keras.layers.Layer):
    """Look up rows by keys as they come, and train them in the backward pass.

    Parameters
    ----------
    dim : int
        Number of columns.
    optimizer : Optimizer
        What trains the rows, whatever optimizer the model is compiled with; the default is Adagrad(0.05).
    admit : Admission
        Which keys get a row; the default is AlwaysAdmit().
    evict : Eviction or None
        Which rows are forgotten; None: none.
    embeddings_initializer : Initializer, str or initializer of Keras
        Initial rows; a pure function of seed and key.
    combiner : {"sum", "mean", "sqrtn"} or None
        How the keys of the last axis become one row.
    mask_zero : bool
        Whether key 0, or the empty string, means "no key".
    table : str, Table or None
        Name of the table, or a Table that layers share; None: the layer's name.
    seed : int or None
        None: derived from the table's name.
    tiers : Tiers or None
        Where rows go that do not fit into memory; None: all rows are in memory.

    Examples
    --------
    >>> user = HashEmbedding(16, optimizer=Adagrad(0.05), evict=Ttl(days=30))(user_id)
    """

    _saving = keras.saving

    def compute_output_spec(self, inputs: Any, weights: Any = None, mask: Any = None, training: Any = None) -> Any:
        self._note_kinds({"keys": inputs})
        return output_spec(inputs, self.compute_output_shape(inputs.shape), self.compute_dtype)
