# SPDX-License-Identifier: Apache-2.0
"""What `diff` found: how two exported models differ in what they offer and in what they hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_tools.json_data import Count, Report, reported


@dataclass
class Change:
    """Something that differs.

    Attributes
    ----------
    a, b : str or None
        As it is in each model, in words; None: it is not there.
    """

    name: str
    a: str | None
    b: str | None


@dataclass
class OpCounts:
    """How many nodes of an op each model has, as exported."""

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
    """What `graph-tools diff` found.

    Attributes
    ----------
    signatures : list of Change
        Signatures, and their inputs and outputs by `signature/input/key`: dtype, shape.
    ops : list of OpCounts
        Counts that differ, as exported.
    variables : list of Change
        By name: dtype, shape, bytes, and content where only that differs.
    tables : list of Change
        By name: family, rows, dim, dtype, bytes, absent keys.
    assets : list of Change
        By name: size, and content where only that differs.
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
        """Whether nothing that is looked at differs."""
        return not (self.signatures or self.ops or self.variables or self.tables or self.assets)

    @property
    @reported
    def same_interface(self) -> bool:
        """Whether clients of one can talk to the other: signatures are equal."""
        return not self.signatures
