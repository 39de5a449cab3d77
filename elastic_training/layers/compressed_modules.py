# SPDX-License-Identifier: Apache-2.0
"""The layers of fixed size as tf.Module, for models without Keras."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from elastic_training.checkpoints.trackable_rows import TablesAsChildren
from elastic_training.layers.compressed_parts import BinaryCodeArguments, MultiHashArguments, make_group
from elastic_training.layers.feature import Feature
from elastic_training.layers.row_codes import RowCode
from elastic_training.table import Table


class _CompressedModule(TablesAsChildren, tf.Module):
    """A module whose keys share the rows of a small table.

    Its only variable is a scalar that stays zero, through whose gradient rows are updated. So give all of
    `module.trainable_variables` to `tape.gradient`, and apply the gradients or not.
    """

    _one_table = True

    _default_name: str

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name or self._default_name)

    def _set_up(self, feature: Feature, code: RowCode, combine: str) -> None:
        feature = replace(feature, table=self.name)
        self._group = make_group(f"{type(self).__name__} {self.name!r}", feature, code, combine)
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


class BinaryCodeEmbeddingModule(BinaryCodeArguments, _CompressedModule):
    """BinaryCodeEmbedding without Keras; see there for the parameters."""

    _default_name = "binary_code_embedding"


class MultiHashEmbeddingModule(MultiHashArguments, _CompressedModule):
    """MultiHashEmbedding without Keras; see there for the parameters."""

    _default_name = "multi_hash_embedding"
