# SPDX-License-Identifier: Apache-2.0
"""Layers whose keys share the rows of a small table, for either Keras and for tf.Module."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from elastic_training.layers.compressed_group import CompressedGroup
from elastic_training.layers.feature import Feature
from elastic_training.layers.keys import is_key
from elastic_training.layers.layer_parts import LayerParts, training_of
from elastic_training.layers.row_codes import BinaryCode, Hashes, QuotientRemainder, RowCode

# Fields of Feature that a layer has as its arguments.
_SETTINGS = ("dim", "optimizer", "embeddings_initializer", "combiner", "mask_zero", "seed")


def make_group(owner: str, feature: Feature, code: RowCode, combine: str) -> CompressedGroup:
    """Return the group of a layer whose table has the name of the layer."""
    if not isinstance(feature.dim, int) or isinstance(feature.dim, bool) or feature.dim < 1:
        raise ValueError(f"{owner}: dim is {feature.dim!r}, expected the number of columns")
    return CompressedGroup(owner, feature, code, combine)


class _Arguments:
    """The arguments that both layers have, for either Keras and for tf.Module; `options` are those of its base.

    A class that derives from this one defines `_set_up`.
    """

    if TYPE_CHECKING:

        def _set_up(self, feature: Feature, code: RowCode, combine: str) -> None: ...

    def __init__(
        self,
        dim: int,
        code: RowCode,
        combine: str,
        optimizer: Any = None,
        embeddings_initializer: Any = None,
        combiner: str | None = None,
        mask_zero: bool = False,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        feature = Feature(dim, optimizer, None, None, embeddings_initializer, combiner, mask_zero, None, seed)
        self._set_up(feature, code, combine)


class BinaryCodeArguments(_Arguments):
    """The arguments of BinaryCodeEmbedding; `options` are those that both layers have."""

    def __init__(
        self,
        dim: int,
        bits: int,
        blocks: int,
        cut: str = "succession",
        fuse: str = "sum",
        hash_seed: int = 0,
        **options: Any,
    ) -> None:
        combine = combine_of(type(self).__name__, fuse)
        super().__init__(dim, BinaryCode(bits, blocks, cut, hash_seed), combine, **options)


class MultiHashArguments(_Arguments):
    """The arguments of MultiHashEmbedding; `options` are those that both layers have."""

    def __init__(self, dim: int, code: Any, combine: str = "add", **options: Any) -> None:
        super().__init__(dim, hash_code_of(type(self).__name__, code), combine, **options)


class CompressedParts(LayerParts):
    """A layer of a compressed table, for either Keras."""

    _one_table = True
    _group: Any

    def _set_up(self, feature: Feature, code: RowCode, combine: str) -> None:
        feature = replace(feature, table=self.name)
        self._group = make_group(f"{type(self).__name__} {self.name!r}", feature, code, combine)
        self._group.on_table = self._on_table()
        self.supports_masking = True

    @property
    def dim(self) -> int:
        """Number of columns of the output."""
        return int(self._group.feature.dim)

    @property
    def code(self) -> RowCode:
        """How keys become rows."""
        code: RowCode = self._group.code
        return code

    def call(self, inputs: Any, weights: Any = None, mask: Any = None, training: Any = None) -> Any:
        """Return the rows of keys; arguments and result are those of HashEmbedding.call."""
        training = training_of(self._group.owner, training)
        if not self.trainable:
            training = False
        masked = mask if self._group.feature.combiner is not None else None
        rows = self._group.look_up(inputs, weights, masked, self.trap, training)
        dtype: Any = self.compute_dtype  # type: ignore[attr-defined]
        return rows if rows.dtype == dtype else tf.cast(rows, dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        shape = tuple(input_shape)
        return (*(shape if self._group.feature.combiner is None else shape[:-1]), self.dim)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        feature = self._group.feature
        if feature.combiner is not None or isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)):
            return None
        return is_key(inputs) if feature.mask_zero else previous_mask

    def _settings(self) -> dict[str, Any]:
        config = self._group.feature.to_config()
        return {name: config[name] for name in _SETTINGS}


class BinaryCodeParts(BinaryCodeArguments, CompressedParts):
    """BinaryCodeEmbedding, for either Keras."""

    def get_config(self) -> dict[str, Any]:
        code = self.code
        assert isinstance(code, BinaryCode)
        own = {"bits": code.bits, "blocks": code.blocks, "cut": code.cut, "hash_seed": code.seed}
        return {**super().get_config(), **own, "fuse": fuse_of(self._group.combine), **self._settings()}  # type: ignore[misc]


class MultiHashParts(MultiHashArguments, CompressedParts):
    """MultiHashEmbedding, for either Keras."""

    def get_config(self) -> dict[str, Any]:
        own = {"code": self.code.to_config(), "combine": self._group.combine}
        return {**super().get_config(), **own, **self._settings()}  # type: ignore[misc]


_FUSES = {"sum": "add", "concat": "concat"}


def combine_of(owner: str, fuse: str) -> str:
    """Return the `combine` of a BinaryCodeEmbedding's `fuse`."""
    if fuse not in _FUSES:
        raise ValueError(f"{owner}: fuse is {fuse!r}, expected 'sum' or 'concat'")
    return _FUSES[fuse]


def fuse_of(combine: str) -> str:
    """Return the reverse of `combine_of`."""
    return {"add": "sum"}.get(combine, combine)


def hash_code_of(owner: str, code: Any) -> RowCode:
    """Return the code of a MultiHashEmbedding from itself or its config."""
    found = RowCode.of(code)
    if not isinstance(found, (Hashes, QuotientRemainder)):
        raise ValueError(f"{owner}: code is {code!r}, expected Hashes or QuotientRemainder")
    return found
