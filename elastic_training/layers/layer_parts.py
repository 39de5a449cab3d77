# SPDX-License-Identifier: Apache-2.0
"""What the layers for Keras 3 and for tf-keras have in common; each adds how its Keras makes and checks weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import tensorflow as tf

from elastic_training.checkpoints.keras_store import TablesInStore
from elastic_training.checkpoints.trackable_rows import TablesAsChildren
from elastic_training.layers import shared_tables
from elastic_training.layers.arguments import HashEmbeddingArguments, named_table
from elastic_training.layers.copied_weights import WeightsWithoutRows
from elastic_training.layers.feature import Feature
from elastic_training.layers.group import FeatureGroup
from elastic_training.layers.keys import is_key
from elastic_training.table import Table


def training_of(owner: str, training: Any) -> bool | None:
    """Return the `training` argument as a bool or None; Keras may pass a constant tensor."""
    if training is None or isinstance(training, bool):
        return training
    value = tf.get_static_value(training) if tf.is_tensor(training) else training
    if value is None:
        raise ValueError(f"{owner}: training is a tensor, expected True, False or None")
    return bool(value)


class LayerParts(TablesInStore, TablesAsChildren, WeightsWithoutRows):
    """A mixin of Keras layers; `_saving` is the module `saving` of their Keras."""

    _saving: Any
    _group: FeatureGroup
    name: str
    trainable: bool
    # The layer's only weight: a scalar that stays zero.
    trap: Any

    @property
    def tables(self) -> dict[str, Table]:
        """Tables by name; a table exists once the layer has seen keys."""
        return dict(self._group.tables)

    def _note_users(self, features: Mapping[str, Feature]) -> None:
        for feature in features.values():
            if isinstance(feature.table, Table):
                shared_tables.note_user(feature.table, self)

    def _table_config(self, table: Any) -> Any:
        return shared_tables.to_config(table) if isinstance(table, Table) else table

    def _outputs(self, inputs: Any, weights: Any, masks: Any, training: Any) -> dict[str, Any]:
        training = training_of(self._group.owner, training)
        if not self.trainable:
            training = False
        found = self._group.look_up(inputs, weights or {}, masks or {}, self.trap, training)
        dtype: Any = self.compute_dtype  # type: ignore[attr-defined]
        return {name: rows if rows.dtype == dtype else tf.cast(rows, dtype) for name, rows in found.items()}

    def get_build_config(self) -> dict[str, Any]:
        """Return the kind of keys of each feature, with which the layer makes its tables again."""
        return {"kinds": self._group.kinds()}

    def build_from_config(self, config: dict[str, Any]) -> None:
        self._group.prepare(config["kinds"])
        self.build(None)  # type: ignore[attr-defined]


class HashEmbeddingParts(HashEmbeddingArguments, LayerParts):
    """HashEmbedding, for either Keras."""

    _one_table = True

    def _set_up(self, feature: Feature) -> None:
        self._feature = feature
        owner = f"HashEmbedding {self.name!r}"
        self._group = FeatureGroup(owner, {"keys": named_table(feature, self.name)}, {})
        self._group.on_table = self._on_table()
        self._group.dim_of("keys")
        self._note_users({"keys": feature})
        self.supports_masking = True

    @property
    def dim(self) -> int:
        """Number of columns of the output."""
        return self._group.dim_of("keys")

    @property
    def table(self) -> Table:
        """The layer's table; it exists once the layer has seen keys."""
        return self._group.only_table()

    def call(self, inputs: Any, weights: Any = None, mask: Any = None, training: Any = None) -> Any:
        """Return the rows of keys.

        Parameters
        ----------
        inputs : Tensor, RaggedTensor or SparseTensor of integers or strings
        weights : of the same structure, float, or None
            Only with a combiner.
        mask : of the same structure, bool, or None
            Keys that are pooled; without a combiner it has no effect.
        training : bool or None
            True counts and admits keys, and lets gradients update rows; False writes nothing; None: True if a gradient
            tape watches the layer.

        Returns
        -------
        Tensor or RaggedTensor [*keys, dim], without the last axis of `keys` if the layer pools
        """
        given = {} if weights is None else {"keys": weights}
        masks = {} if mask is None or self._feature.combiner is None else {"keys": mask}
        return self._outputs({"keys": inputs}, given, masks, training)["keys"]

    def compute_output_shape(self, input_shape: Any) -> Any:
        shape = tuple(input_shape)
        return (*(shape if self._feature.combiner is None else shape[:-1]), self.dim)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        if self._feature.combiner is not None or isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)):
            return None
        return is_key(inputs) if self._feature.mask_zero else previous_mask

    def get_config(self) -> dict[str, Any]:
        config = self._feature.to_config()
        own = {**config, "table": self._table_config(config["table"])}
        return {**super().get_config(), **own}  # type: ignore[misc]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        owner = f"HashEmbedding {config['name']!r}"
        return cls(**{**config, "table": shared_tables.from_config(owner, cls._saving, config.get("table"))})


class FeatureEmbeddingsParts(LayerParts):
    """FeatureEmbeddings, for either Keras."""

    def __init__(
        self,
        features: Mapping[str, Any],
        dim: int | None = None,
        optimizer: Any = None,
        admit: Any = None,
        evict: Any = None,
        embeddings_initializer: Any = None,
        tiers: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        defaults = Feature(dim, optimizer, admit, evict, embeddings_initializer, tiers=tiers)
        owner = f"FeatureEmbeddings {self.name!r}"
        if not isinstance(features, Mapping):
            raise ValueError(f"{owner}: features is {features!r}, expected {{name: Feature}}")
        self._feature_of = {
            name: feature if isinstance(feature, Feature) else Feature.from_config(feature)
            for name, feature in features.items()
        }
        self._defaults = defaults
        self._group = FeatureGroup(owner, self._feature_of, defaults.settings())
        self._group.on_table = self._on_table()
        for name in features:
            self._group.dim_of(name)
        self._note_users(self._feature_of)
        self.supports_masking = True

    def call(self, inputs: Any, weights: Any = None, masks: Any = None, training: Any = None) -> dict[str, Any]:
        """Return the rows of each feature: {name: Tensor or RaggedTensor}.

        Parameters
        ----------
        inputs : {feature: keys}
        weights, masks : {feature: tensor} or None
            As of HashEmbedding, for some of the features.
        training : bool or None
        """
        return self._outputs(inputs, weights, masks, training)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return {name: self._shape_of(name, input_shape[name]) for name in self._feature_of}

    def _shape_of(self, name: str, shape: Any) -> tuple[int | None, ...]:
        pooled = self._feature_of[name].combiner is not None
        return (*(tuple(shape)[:-1] if pooled else tuple(shape)), self._group.dim_of(name))

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        masks = {}
        for name, feature in self._feature_of.items():
            dense = not isinstance(inputs[name], (tf.RaggedTensor, tf.SparseTensor))
            masked = feature.mask_zero and feature.combiner is None and dense
            masks[name] = is_key(inputs[name]) if masked else None
        return masks

    def get_config(self) -> dict[str, Any]:
        features = {}
        for name, feature in self._feature_of.items():
            config = feature.to_config()
            features[name] = {**config, "table": self._table_config(config["table"])}
        defaults = {name: self._defaults.to_config()[name] for name in FEATURE_DEFAULTS}
        return {**super().get_config(), "features": features, **defaults}  # type: ignore[misc]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        owner = f"FeatureEmbeddings {config['name']!r}"
        features = {
            name: {**feature, "table": shared_tables.from_config(owner, cls._saving, feature["table"])}
            for name, feature in config["features"].items()
        }
        return cls(**{**config, "features": features})


FEATURE_DEFAULTS = ("dim", "optimizer", "admit", "evict", "embeddings_initializer", "tiers")
