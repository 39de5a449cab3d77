# SPDX-License-Identifier: Apache-2.0
"""The arguments of layers, for either Keras and for tf.Module."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from elastic_training.layers.feature import Feature


class HashEmbeddingArguments:
    """The arguments of HashEmbedding; `options` are those of its base.

    A class that derives from this one defines `_set_up`.
    """

    if TYPE_CHECKING:

        def _set_up(self, feature: Feature) -> None: ...

    def __init__(
        self,
        dim: int | None = None,
        optimizer: Any = None,
        admit: Any = None,
        evict: Any = None,
        embeddings_initializer: Any = None,
        combiner: str | None = None,
        mask_zero: bool = False,
        table: Any = None,
        seed: int | None = None,
        tiers: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._set_up(
            Feature(dim, optimizer, admit, evict, embeddings_initializer, combiner, mask_zero, table, seed, tiers)
        )


def named_table(feature: Feature, name: str) -> Feature:
    """Return a feature whose table has this name unless it has one."""
    return feature if feature.table is not None else replace(feature, table=name)
