# SPDX-License-Identifier: Apache-2.0
"""Define the report of `compress`: that of `cut`, with the fitted table and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from graph_tools.json_data import Count, JsonSchema, NotNegative, Positive, reported
from graph_tools.report.cut import CutReport

Method = Annotated[str, JsonSchema(enum=["binary_code", "hashes", "quotient_remainder", "dims"])]
WeighedBy = Annotated[str, JsonSchema(enum=["frequency", "norm", "nothing"])]


@dataclass
class CompressedTable:
    """A table whose rows were replaced by sums of the rows of a code, or by rows of different widths.

    Attributes
    ----------
    keys : int
    bytes_before : int
        Of the keys and rows as exported.
    bytes : int
        Of the fitted rows; with `dims`, of the elements that rows keep, and of the keys.
    rows : int
        Number of fitted rows.
    method : str
        How keys lead to rows: by the bits of a hash, several hashes, or a division.
    parts : list of int
        Rows of each block, of each hash, or of quotients and remainders; a key has one row of each. With `dims`, the
        rows of each width.
    dims : list of int
        Widths of rows; empty unless the method is `dims`.
    error : float
        Sum of squared differences between old and new rows, relative to the sum of squares of the old rows; both
        weighted.
    weighed_by : str
        `frequency`: keys count as often as training met them. If the export has no frequencies, `nothing`: alike; for
        `dims` `norm`: as the squares of their rows.
    """

    name: str
    keys: Count
    dim: Positive
    bytes_before: Count
    bytes: Count
    rows: Positive
    method: Method
    parts: list[Positive]
    error: NotNegative
    weighed_by: WeighedBy
    dims: list[Positive] = field(default_factory=list)


@dataclass
class OutputAuc:
    """The area under the ROC curve of an output, over the requests with labels.

    Attributes
    ----------
    before, after : float
    """

    signature: str
    output: str
    before: float
    after: float


@dataclass
class CompressReport(CutReport):
    """The report of `graph-tools compress`.

    Attributes
    ----------
    compressed : CompressedTable or None
        None: not fitted yet.
    auc : list of OutputAuc
        Empty in a forecast, and without labels.
    """

    SCHEMA = "compress_report/1"

    compressed: CompressedTable | None = None
    auc: list[OutputAuc] = field(default_factory=list)

    @property
    @reported
    def lossy(self) -> bool:
        """True: the new rows are not those of the table."""
        return True
