# SPDX-License-Identifier: Apache-2.0
"""FeatureEmbeddings for Keras 3: many features, looked up and updated by one op."""

from __future__ import annotations

from typing import Any

import keras

from elastic_training.layers.keras_trap import KerasTrap, output_spec
from elastic_training.layers.layer_parts import FeatureEmbeddingsParts
from elastic_training.layers.shared_tables import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
class FeatureEmbeddings(FeatureEmbeddingsParts, KerasTrap, keras.layers.Layer):
    """Look up the rows of many features: {name: keys} → {name: rows}.

    Parameters
    ----------
    features : {name: Feature}
        Features with the same `table` share it.
    dim, optimizer, admit, evict, embeddings_initializer, tiers
        As of HashEmbedding, for tables for which no feature says.

    Examples
    --------
    >>> embed = FeatureEmbeddings(
    ...     {"user_id": Feature(), "item_id": Feature(), "history": Feature(table="item_id", combiner="mean")},
    ...     dim=16,
    ...     optimizer=Adagrad(0.05),
    ... )
    """

    _saving = keras.saving

    def compute_output_spec(
        self, inputs: Any, weights: Any = None, masks: Any = None, training: Any = None
    ) -> dict[str, Any]:
        known = {name: inputs[name] for name in self._feature_of if name in inputs}
        self._note_kinds(known)
        return {
            name: output_spec(keys, self._shape_of(name, keys.shape), self.compute_dtype)
            for name, keys in known.items()
        }
