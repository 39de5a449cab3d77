# SPDX-License-Identifier: Apache-2.0
"""The description of a table in reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from graph_tools.json_data import Count, JsonSchema
from graph_tools.model.table_size import TableSize
from graph_tools.options import RowType

AbsentKind = Annotated[str, JsonSchema(enum=["zero", "row", "modulo"])]
TableKind = Annotated[str, JsonSchema(enum=["variable", "sparse"])]

# Row types that represent every value of a dtype; fp32 leaves rows as they were exported.
_EXACT = {"bf16": "bfloat16", "fp16": "float16"}


@dataclass
class UnusedTensor:
    """A tensor of the checkpoint that serving does not need, with the reason."""

    name: str
    bytes: Count
    reason: str


@dataclass
class AbsentValue:
    """The value for a key that a table does not contain.

    Attributes
    ----------
    kind : str
        Zeros, one row, or the row of the key's remainder.
    rows : int
        Number of rows that it occupies.
    source : str
        Where it was found.
    lookups_with_their_own : int
        Number of lookups that have their own value instead.
    """

    kind: AbsentKind
    rows: Count
    source: str
    lookups_with_their_own: Count


@dataclass
class TableRecord:
    """The content of a table, how it is stored, and its size in each row type.

    Attributes
    ----------
    family : str
        The training system; `tensorflow` for variables.
    dim : int
        Length of a row.
    source_bytes : int
        Size as exported.
    dropped_tensors : list of UnusedTensor
        Tensors of the source that serving does not need.
    equal_absent : int
        Number of rows that equal the value of an absent key.
    duplicates : int
        Number of rows that equal another row.
    duplicates_exact : bool
        False: there are more duplicates than could be counted.
    below_norm, below_frequency : int
        Number of rows whose norm is smaller, or whose keys were seen less often, than the requested limit.
    dropped : dict of str to int
        Number of dropped keys, by reason.
    lossy_rows : int
        Number of rows that were dropped although they could change a score.
    kept_keys, stored_rows : int
        Number of kept keys and of stored rows; fewer rows than keys are stored if several keys share a row.
    layout : str
        How keys lead to rows.
    share : str
        Which rows are stored once for many keys.
    dtype : str
        Type of the stored rows; `fp32` leaves them as exported.
    absent : AbsentValue or None
        The value for a key that the table does not contain; None: the table is a plain variable.
    forecast : dict of str to int
        Size in bytes, by row type.
    bytes : int
        Size as stored.
    file : TableSize
        The table file that `fuse` makes of it, if the model looks it up in a way that can be fused.
    reasons : list of str
        Why this form of storage was chosen.
    """

    name: str
    family: str
    kind: TableKind
    keys: Count
    dim: Count
    source_dtype: str
    source_bytes: Count
    dropped_tensors: list[UnusedTensor]
    zero_rows: Count
    equal_absent: Count
    duplicates: Count
    duplicates_exact: bool
    below_norm: Count
    below_frequency: Count
    dropped: dict[str, Count]
    lossy_rows: Count
    kept_keys: Count
    stored_rows: Count
    layout: str
    share: str
    dtype: RowType
    absent: AbsentValue | None
    forecast: dict[str, Count]
    bytes: Count
    file: TableSize
    reasons: list[str]

    @property
    def lossy(self) -> bool:
        """Return whether rows from the table may differ from the exported ones."""
        narrower = self.dtype != "fp32" and _EXACT.get(self.dtype) != self.source_dtype
        return narrower or self.lossy_rows > 0
