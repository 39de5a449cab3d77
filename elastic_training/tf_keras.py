# SPDX-License-Identifier: Apache-2.0
"""The layers for tf-keras (Keras 2): `et.tf_keras.HashEmbedding`. Only this module imports tf_keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic_training.checkpoints.callback import SaveParts
from elastic_training.export.publisher import PublisherParts
from elastic_training.layers.compressed_parts import BinaryCodeParts, MultiHashParts, combine_of, hash_code_of
from elastic_training.layers.feature import Feature
from elastic_training.layers.frequency_parts import FrequencyEmbeddingParts
from elastic_training.layers.layer_parts import FeatureEmbeddingsParts, HashEmbeddingParts
from elastic_training.layers.row_codes import BinaryCode
from elastic_training.layers.shared_tables import PACKAGE, SharedTable
from elastic_training.reports.tensorboard import SummaryParts

try:
    import tf_keras as _keras
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("elastic_training.tf_keras: tf_keras is not installed, expected tf-keras 2.21") from error

__all__ = [
    "BinaryCodeEmbedding",
    "ElasticSummaries",
    "FeatureEmbeddings",
    "FrequencyEmbedding",
    "HashEmbedding",
    "MultiHashEmbedding",
    "Publisher",
    "SaveCheckpoints",
]

_registered = _keras.saving.register_keras_serializable(package=PACKAGE)
_registered(SharedTable)


class _Trap:
    """What layers for tf-keras have besides LayerParts."""

    _group: Any

    def build(self, input_shape: Any) -> None:
        self.trap = self.add_weight(  # type: ignore[attr-defined]
            "trap", shape=(), dtype="float32", initializer="zeros", experimental_autocast=False
        )
        self.built = True


@_registered
class HashEmbedding(_Trap, HashEmbeddingParts, _keras.layers.Layer):
    """HashEmbedding of the package, for models of tf-keras; see there."""

    _saving = _keras.saving

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
            Feature(dim, optimizer, admit, evict, embeddings_initializer, combiner, mask_zero, table, seed, tiers),
        )


@_registered
class FeatureEmbeddings(_Trap, FeatureEmbeddingsParts, _keras.layers.Layer):
    """FeatureEmbeddings of the package, for models of tf-keras; see there."""

    _saving = _keras.saving

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
        self._set_up(features, Feature(dim, optimizer, admit, evict, embeddings_initializer, tiers=tiers))


@_registered
class FrequencyEmbedding(FrequencyEmbeddingParts, _keras.layers.Layer):
    """FrequencyEmbedding of the package, for models of tf-keras; see there."""

    _block = HashEmbedding

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
        settings = {
            "optimizer": optimizer,
            "admit": admit,
            "evict": evict,
            "embeddings_initializer": embeddings_initializer,
            "mask_zero": mask_zero,
            "seed": seed,
            "tiers": tiers,
        }
        self._set_up(dims, settings)


@_registered
class BinaryCodeEmbedding(_Trap, BinaryCodeParts, _keras.layers.Layer):
    """BinaryCodeEmbedding of the package, for models of tf-keras; see there."""

    _saving = _keras.saving

    def __init__(
        self,
        dim: int,
        bits: int,
        blocks: int,
        cut: str = "succession",
        fuse: str = "sum",
        hash_seed: int = 0,
        optimizer: Any = None,
        embeddings_initializer: Any = None,
        combiner: str | None = None,
        mask_zero: bool = False,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        settings = {
            "dim": dim,
            "optimizer": optimizer,
            "embeddings_initializer": embeddings_initializer,
            "combiner": combiner,
            "mask_zero": mask_zero,
            "seed": seed,
        }
        self._set_up(settings, BinaryCode(bits, blocks, cut, hash_seed), combine_of("BinaryCodeEmbedding", fuse))


@_registered
class MultiHashEmbedding(_Trap, MultiHashParts, _keras.layers.Layer):
    """MultiHashEmbedding of the package, for models of tf-keras; see there."""

    _saving = _keras.saving

    def __init__(
        self,
        dim: int,
        code: Any,
        combine: str = "add",
        optimizer: Any = None,
        embeddings_initializer: Any = None,
        combiner: str | None = None,
        mask_zero: bool = False,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        settings = {
            "dim": dim,
            "optimizer": optimizer,
            "embeddings_initializer": embeddings_initializer,
            "combiner": combiner,
            "mask_zero": mask_zero,
            "seed": seed,
        }
        self._set_up(settings, hash_code_of("MultiHashEmbedding", code), combine)


class ElasticSummaries(SummaryParts, _keras.callbacks.Callback):
    """ElasticSummaries of the package, for models of tf-keras; see there."""


class Publisher(PublisherParts, _keras.callbacks.Callback):
    """Publisher of the package, for models of tf-keras; see there."""


class SaveCheckpoints(SaveParts, _keras.callbacks.Callback):
    """A callback of `fit` that saves checkpoints; see `Checkpoints.callback`."""
