# SPDX-License-Identifier: Apache-2.0
"""Describe the table files of a fused model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from graph_tools.json_data import Count, JsonSchema, Positive, Sha256
from graph_tools.options import RowType
from graph_tools.store import TableFile
from graph_tools.store.row_runs import NarrowRows

AssetPath = Annotated[str, JsonSchema(type="string", pattern="^assets/")]
IndexKind = Annotated[str, JsonSchema(enum=["direct", "int64", "string"])]
AbsentKey = Annotated[str, JsonSchema(enum=["zeros", "error", "default"])]


@dataclass
class TableFileRecord:
    """A table file of an artifact, as docs/table_format.md describes it.

    Attributes
    ----------
    file : str
        Path relative to the artifact.
    sha256 : str
        SHA-256 of its content; the file is named after it.
    tables : list of str
        The nodes of the graph that use it.
    index_kind : str
        How rows are found: by their numbers (`direct`), or by keys.
    absent_key : str
        Result for a key that the table does not contain: zeros, a refusal of the request, or one of the default rows.
    narrow : list of NarrowRows
        Rows that are stored with fewer elements: from row `first` on, only the first `dim` ones.
    """

    file: AssetPath
    sha256: Sha256
    tables: list[str]
    bytes: Count
    rows: Count
    dim: Positive
    row_type: RowType
    index_kind: IndexKind
    absent_key: AbsentKey
    default_rows: Count
    narrow: list[NarrowRows] = field(default_factory=list)


@dataclass(kw_only=True)
class PlacedTableFile(TableFileRecord):
    """A table file, and how it was put into its place.

    Attributes
    ----------
    shared : bool
        True if the file is also linked from elsewhere: from a table store, or from another artifact.
    notes : list of str
        Remarks on how it was put into its place.
    """

    shared: bool
    notes: list[str] = field(default_factory=list)


def describe_table_files(files: Mapping[str, TableFile]) -> list[PlacedTableFile]:
    """Describe the table files of a model, given by node of the graph; each file is listed once."""
    found: dict[str, PlacedTableFile] = {}
    for node, file in sorted(files.items()):
        if file.name in found:
            found[file.name].tables.append(node)
            continue
        header = file.header
        found[file.name] = PlacedTableFile(
            file=f"assets/{file.name}",
            sha256=file.sha256,
            tables=[node],
            bytes=file.size,
            rows=header.rows,
            dim=header.dim,
            row_type=header.row_type,
            index_kind=header.index_kind,
            absent_key=header.absent_key,
            default_rows=header.default_rows,
            narrow=list(header.narrow),
            shared=file.path.stat().st_nlink > 1,
            notes=list(file.notes),
        )
    return list(found.values())
