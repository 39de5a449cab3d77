# SPDX-License-Identifier: Apache-2.0
"""The layers for tf-keras (Keras 2): `et.tf_keras.HashEmbedding`. Only this module imports tf_keras."""

from __future__ import annotations

from typing import Any

from elastic_training.checkpoints.callback import SaveParts
from elastic_training.export.publisher import PublisherParts
from elastic_training.layers.compressed_parts import BinaryCodeParts, MultiHashParts
from elastic_training.layers.frequency_parts import FrequencyEmbeddingParts
from elastic_training.layers.layer_parts import FeatureEmbeddingsParts, HashEmbeddingParts
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


@_registered
class FeatureEmbeddings(_Trap, FeatureEmbeddingsParts, _keras.layers.Layer):
    """FeatureEmbeddings of the package, for models of tf-keras; see there."""

    _saving = _keras.saving


@_registered
class FrequencyEmbedding(FrequencyEmbeddingParts, _keras.layers.Layer):
    """FrequencyEmbedding of the package, for models of tf-keras; see there."""

    _block = HashEmbedding


@_registered
class BinaryCodeEmbedding(_Trap, BinaryCodeParts, _keras.layers.Layer):
    """BinaryCodeEmbedding of the package, for models of tf-keras; see there."""

    _saving = _keras.saving


@_registered
class MultiHashEmbedding(_Trap, MultiHashParts, _keras.layers.Layer):
    """MultiHashEmbedding of the package, for models of tf-keras; see there."""

    _saving = _keras.saving


class ElasticSummaries(SummaryParts, _keras.callbacks.Callback):
    """ElasticSummaries of the package, for models of tf-keras; see there."""


class Publisher(PublisherParts, _keras.callbacks.Callback):
    """Publisher of the package, for models of tf-keras; see there."""


class SaveCheckpoints(SaveParts, _keras.callbacks.Callback):
    """A callback of `fit` that saves checkpoints; see `Checkpoints.callback`."""
