# SPDX-License-Identifier: Apache-2.0
"""The plan of a `RecEmbeddingGroup`: what it looks up, pools and concatenates.

A plan refers to features, tables, outputs and keys by their numbers. Call `EmbeddingPlan.check` before a plan is
written into a node: the kernel checks the same, but only when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graph_tools.plans import records
from graph_tools.plans.embedding_checks import check_column, check_key, check_output
from graph_tools.plans.embedding_parts import Column, GroupOutput, Key


@dataclass(frozen=True)
class EmbeddingPlan:
    """The plan of a `RecEmbeddingGroup`."""

    outputs: tuple[GroupOutput, ...]
    keys: tuple[Key, ...]
    columns: tuple[Column, ...]

    def to_json(self) -> str:
        """Return the text of the op's attribute; equal plans give equal texts."""
        return records.to_json(self)

    @staticmethod
    def from_json(text: str | bytes) -> EmbeddingPlan:
        """Read the text of the op's attribute; raise `UnreadableError`, with the fault, if it is not valid."""
        return records.from_json(EmbeddingPlan, text, "embedding plan")

    def check(self, features: int, dims: Sequence[int]) -> None:
        """Raise `UnreadableError` for a number without an object, or a column that does not fit.

        Parameters
        ----------
        features : int
            Number of features of the op.
        dims : sequence of int [tables]
            Lengths of the tables' rows.
        """
        for number, output in enumerate(self.outputs):
            check_output(output, f"embedding plan: output {number}", len(self.keys))
        for number, key in enumerate(self.keys):
            check_key(key, f"embedding plan: key {number}", features)
        for number, column in enumerate(self.columns):
            check_column(column, f"embedding plan: column {number}", self.outputs, self.keys, features, dims)
