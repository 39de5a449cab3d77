# SPDX-License-Identifier: Apache-2.0
"""The layers as tf.Module, for models without Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from elastic_training.checkpoints.trackable_rows import TablesAsChildren
from elastic_training.layers.arguments import HashEmbeddingArguments, named_table
from elastic_training.layers.feature import Feature
from elastic_training.layers.group import FeatureGroup
from elastic_training.table import Table


class _TablesModule(TablesAsChildren, tf.Module):
    """A module that looks rows up.

    Its only variable is a scalar that stays zero, through whose gradient rows are updated. So give all of
    `module.trainable_variables` to `tape.gradient`, and apply the gradients or not.
    """

    _default_name: str

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name or self._default_name)

    def _look_up_by(self, features: Mapping[str, Feature], defaults: Mapping[str, Any]) -> None:
        self._group = FeatureGroup(f"{type(self).__name__} {self.name!r}", features, defaults)
        self._group.on_table = self._on_table()
        self.trap = tf.Variable(0.0, name="trap")

    @property
    def tables(self) -> dict[str, Table]:
        """Tables by name; a table exists once the module has seen keys."""
        return dict(self._group.tables)


class FeatureEmbeddingsModule(_TablesModule):
    """FeatureEmbeddings without Keras; see there for the parameters."""

    _default_name = "feature_embeddings"

    def __init__(
        self,
        features: Mapping[str, Feature],
        dim: int | None = None,
        optimizer: Any = None,
        admit: Any = None,
        evict: Any = None,
        embeddings_initializer: Any = None,
        tiers: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        defaults = Feature(dim, optimizer, admit, evict, embeddings_initializer, tiers=tiers)
        self._look_up_by(features, defaults.settings())

    def __call__(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        masks: Mapping[str, Any] | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Return the rows of each feature; the arguments are those of FeatureEmbeddings.call."""
        outputs: dict[str, Any] = self._group.look_up(inputs, weights or {}, masks or {}, self.trap, training)
        return outputs


class HashEmbeddingModule(HashEmbeddingArguments, _TablesModule):
    """HashEmbedding without Keras; see there for the parameters."""

    _one_table = True
    _default_name = "hash_embedding"

    def _set_up(self, feature: Feature) -> None:
        self._look_up_by({"keys": named_table(feature, self.name)}, {})

    @property
    def table(self) -> Table:
        """The table; see HashEmbedding.table."""
        table: Table = self._group.only_table()
        return table

    def __call__(self, inputs: Any, weights: Any = None, mask: Any = None, training: bool | None = None) -> Any:
        """Return the rows of keys; the arguments are those of HashEmbedding.call."""
        given = {} if weights is None else {"keys": weights}
        masks = {} if mask is None else {"keys": mask}
        return self._group.look_up({"keys": inputs}, given, masks, self.trap, training)["keys"]
