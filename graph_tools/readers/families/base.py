# SPDX-License-Identifier: Apache-2.0
"""What the reader of one training system gives: its tables, and its lookups in the common form."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from graph_tools.model import Model


class Family(Protocol):
    """One training system whose exports hold ops that stock TensorFlow does not know.

    Attributes
    ----------
    name : str
        As the report and `docs/formats.md` name it.
    """

    name: str

    def matches(self, model: Model) -> bool:
        """Say whether the graph holds a lookup op of this system."""
        ...

    def normalize(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        """Fill `model.sparse_tables` and replace this system's lookup ops by `SparseLookup`.

        Parameters
        ----------
        model : Model
            As read, not yet pruned; its `checkpoint` is open.
        tables : Path, optional
            Where the user says that table files are, for systems that keep them outside the SavedModel.
        absent : dict of str to str
            What the user wants for absent keys, by table (`absent_keys` reads it). A table named here with `zero` or
            `row:K` needs no default of its own, and its lookups get no `default` input: the caller sets
            `SparseTable.absent` afterwards.

        Raises
        ------
        UnreadableError
            A table's tensors or files are missing, damaged or contradict each other.
        ConversionError
            A lookup means something that cannot be kept.
        """
        ...
