# SPDX-License-Identifier: Apache-2.0
"""The part of reports about models that follow deltas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from graph_tools.json_data import Count, JsonSchema

Lineage = Annotated[str, JsonSchema(pattern="^[0-9a-f]{32}$")]
FollowedKey = Annotated[str, JsonSchema(enum=["row_number", "int64", "string"])]


@dataclass
class FollowedTable:
    """A table whose rows a delta may change.

    Attributes
    ----------
    source : str
        The name of the table or variable in deltas.
    key_kind : str
        How deltas name its rows.
    """

    source: str
    key_kind: FollowedKey
    dim: Count


@dataclass
class Live:
    """What a live model follows.

    Attributes
    ----------
    lineage : str
        The training run whose deltas fit.
    epoch : int
        The epoch at which the model begins.
    tables : list of FollowedTable
    variables : list of str
        The variables from which weights are computed.
    formulas : int
        Number of weights that are computed from them.
    """

    lineage: Lineage
    epoch: Count
    tables: list[FollowedTable]
    variables: list[str]
    formulas: Count
