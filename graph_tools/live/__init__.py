# SPDX-License-Identifier: Apache-2.0
"""Live models: which values of a served model depend on variables that a trainer changes, and how."""

from graph_tools.live.errors import UntracedError
from graph_tools.live.formulas import Formulas
from graph_tools.live.functions import as_float64, contiguous, generic, is_traced
from graph_tools.live.numbers import PlanNumbers
from graph_tools.live.rows import LiveRows, RowSource, TableOrigin, row_source
from graph_tools.live.tensors import LiveTensor, plain, read_weight
from graph_tools.live.traced import Traced

__all__ = [
    "Formulas",
    "LiveRows",
    "LiveTensor",
    "PlanNumbers",
    "RowSource",
    "TableOrigin",
    "Traced",
    "UntracedError",
    "as_float64",
    "contiguous",
    "generic",
    "is_traced",
    "plain",
    "read_weight",
    "row_source",
]
