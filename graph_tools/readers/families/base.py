# SPDX-License-Identifier: Apache-2.0
"""Define the interface of a training system's reader: its tables, and its lookups in the common form."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from graph_tools.model import Model


class Family(Protocol):
    """A training system whose exports contain ops that stock TensorFlow does not have.

    Attributes
    ----------
    name : str
        Name in the report and in `docs/formats.md`.
    """

    name: str

    def matches(self, model: Model) -> bool:
        """Return whether the graph contains a lookup op of this system."""
        ...

    def normalize(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        """Fill `model.sparse_tables` and replace this system's lookup ops by `SparseLookup`.

        Parameters
        ----------
        model : Model
            Model as read, not yet pruned; its `checkpoint` is open.
        tables : Path, optional
            The user's folder of table files, for systems that keep them outside the SavedModel.
        absent : dict of str to str
            The user's values for absent keys, by table (`absent_keys` parses them). A table with `zero` or `row:K` here
            needs no default of its own, and its lookups get no `default` input: the caller sets `SparseTable.absent`
            afterwards.

        Raises
        ------
        UnreadableError
            A table's tensors or files are missing, damaged or contradict each other.
        ConversionError
            A lookup cannot be converted without changing its result.
        """
        ...
