# SPDX-License-Identifier: Apache-2.0
"""The layers of fixed size as tf.Module, for models without Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from elastic_training.checkpoints.trackable_rows import TablesAsChildren
from elastic_training.layers.compressed_parts import combine_of, hash_code_of, make_group
from elastic_training.layers.row_codes import BinaryCode, RowCode
from elastic_training.table import Table


class _CompressedModule(TablesAsChildren, tf.Module):
    """A module whose keys share the rows of a small table.

    Its only variable is a scalar that stays zero, through whose gradient rows are updated. So give all of
    `module.trainable_variables` to `tape.gradient`, and apply the gradients or not.
    """

    _one_table = True

    def __init__(self, name: str, settings: Mapping[str, Any], code: RowCode, combine: str) -> None:
        super().__init__(name=name)
        self._group = make_group(f"{type(self).__name__} {name!r}", name, settings, code, combine)
        self._group.on_table = self._on_table()
        self.trap = tf.Variable(0.0, name="trap")

    @property
    def code(self) -> RowCode:
        """How keys become rows."""
        code: RowCode = self._group.code
        return code

    @property
    def tables(self) -> dict[str, Table]:
        """Tables by name; a table exists once the module has seen keys."""
        return dict(self._group.tables)

    @property
    def table(self) -> Table:
        """The table; see HashEmbedding.table."""
        table: Table = self._group.only_table()
        return table

    def __call__(self, inputs: Any, weights: Any = None, mask: Any = None, training: bool | None = None) -> Any:
        """Return the rows of keys; the arguments are those of HashEmbedding.call."""
        masked = mask if self._group.feature.combiner is not None else None
        return self._group.look_up(inputs, weights, masked, self.trap, training)


class BinaryCodeEmbeddingModule(_CompressedModule):
    """BinaryCodeEmbedding without Keras; see there for the parameters."""

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
        name: str = "binary_code_embedding",
    ) -> None:
        settings = {
            "dim": dim,
            "optimizer": optimizer,
            "embeddings_initializer": embeddings_initializer,
            "combiner": combiner,
            "mask_zero": mask_zero,
            "seed": seed,
        }
        code = BinaryCode(bits, blocks, cut, hash_seed)
        super().__init__(name, settings, code, combine_of(type(self).__name__, fuse))


class MultiHashEmbeddingModule(_CompressedModule):
    """MultiHashEmbedding without Keras; see there for the parameters."""

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
        name: str = "multi_hash_embedding",
    ) -> None:
        settings = {
            "dim": dim,
            "optimizer": optimizer,
            "embeddings_initializer": embeddings_initializer,
            "combiner": combiner,
            "mask_zero": mask_zero,
            "seed": seed,
        }
        super().__init__(name, settings, hash_code_of(type(self).__name__, code), combine)
