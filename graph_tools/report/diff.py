# SPDX-License-Identifier: Apache-2.0
"""Define the report of `diff`: differences between the interfaces and the contents of two exported models."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_tools.json_data import Count, Report, reported


@dataclass
class Change:
    """A difference.

    Attributes
    ----------
    a, b : str or None
        Description of the item in each model; None: the model does not have it.
    """

    name: str
    a: str | None
    b: str | None


@dataclass
class OpCounts:
    """Number of nodes of an op in each model, as exported."""

    op: str
    a: Count
    b: Count


@dataclass
class ModelTotals:
    """One of the two models, in numbers."""

    path: str
    kind: str
    bytes: Count
    nodes: Count
    functions: Count
    variables: Count
    variable_bytes: Count
    tables: Count
    table_bytes: Count
    assets: Count


@dataclass
class DiffReport(Report):
    """The report of `graph-tools diff`.

    Attributes
    ----------
    signatures : list of Change
        Signatures, and their inputs and outputs by `signature/input/key`: dtype, shape.
    ops : list of OpCounts
        Counts that differ, as exported.
    variables : list of Change
        By name: dtype, shape, bytes, and the content if only that differs.
    tables : list of Change
        By name: family, rows, dim, dtype, bytes, absent keys.
    assets : list of Change
        By name: size and content.
    """

    SCHEMA = "diff_report/1"

    a: ModelTotals
    b: ModelTotals
    signatures: list[Change] = field(default_factory=list)
    ops: list[OpCounts] = field(default_factory=list)
    variables: list[Change] = field(default_factory=list)
    tables: list[Change] = field(default_factory=list)
    assets: list[Change] = field(default_factory=list)

    @property
    @reported
    def equal(self) -> bool:
        """True if none of the compared parts differs."""
        return not (self.signatures or self.ops or self.variables or self.tables or self.assets)

    @property
    @reported
    def same_interface(self) -> bool:
        """True if the signatures are equal, so that clients of one model can use the other."""
        return not self.signatures
