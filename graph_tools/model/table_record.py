# SPDX-License-Identifier: Apache-2.0
"""What reports say of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from graph_tools.json_data import Count, JsonSchema
from graph_tools.options import RowType

AbsentKind = Annotated[str, JsonSchema(enum=["zero", "row", "modulo"])]
TableKind = Annotated[str, JsonSchema(enum=["variable", "sparse"])]

# Row types that hold every value of a dtype; fp32 leaves rows as they were exported.
_EXACT = {"bf16": "bfloat16", "fp16": "float16"}


@dataclass
class UnusedTensor:
    """A tensor of the checkpoint that serving does not need, and why not."""

    name: str
    bytes: Count
    reason: str


@dataclass
class AbsentValue:
    """What a key is given that a table does not hold.

    Attributes
    ----------
    kind : str
        Zeros, one row, or the row of the key's remainder.
    rows : int
        Rows that it takes.
    source : str
        Where it was found.
    lookups_with_their_own : int
        Lookups that give a value of their own instead.
    """

    kind: AbsentKind
    rows: Count
    source: str
    lookups_with_their_own: Count


@dataclass
class TableRecord:
    """What was found in a table, how it is stored, and what it would take in each row type.

    Attributes
    ----------
    family : str
        The training system; `tensorflow` for variables.
    dim : int
        Length of a row.
    source_bytes : int
        As it was exported.
    dropped_tensors : list of UnusedTensor
        Tensors of the source that serving does not need.
    equal_absent : int
        Rows that equal what an absent key is given.
    duplicates : int
        Rows that equal another.
    duplicates_exact : bool
        False: there are more than could be counted.
    below_norm, below_frequency : int
        Rows whose norm is smaller, or whose keys were seen less often, than was asked for.
    dropped : dict of str to int
        Keys that are gone, by reason.
    lossy_rows : int
        Rows that are gone although they could change a score.
    kept_keys, stored_rows : int
        Fewer rows than keys are stored where several keys share one.
    layout : str
        How keys lead to rows.
    share : str
        Which rows are stored once for many keys.
    dtype : str
        How rows are stored; `fp32` as exported.
    absent : AbsentValue or None
        What a key is given that the table does not hold; None: the table is a plain variable.
    forecast : dict of str to int
        Bytes by row type.
    bytes : int
        As it is stored.
    reasons : list of str
        Why it is stored so.
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
    reasons: list[str]

    @property
    def lossy(self) -> bool:
        """Whether what the table gives may differ from what it gave before."""
        narrower = self.dtype != "fp32" and _EXACT.get(self.dtype) != self.source_dtype
        return narrower or self.lossy_rows > 0
