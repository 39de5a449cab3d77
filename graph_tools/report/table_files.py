# SPDX-License-Identifier: Apache-2.0
"""What the table files of a fused model hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graph_tools.store import TableFile


@dataclass
class TableRecord:
    """A table file of the artefact.

    Attributes
    ----------
    file : str
        Below the artefact.
    sha256 : str
        Of its content, after which it is named.
    tables : list of str
        The nodes of the graph that it fills.
    bytes, rows, dim : int
    row_type, index_kind, absent_key : str
        As docs/table_format.md has them; `default`: one of `default_rows`.
    default_rows : int
    shared : bool
        Whether it is one file with others: that of a table store, or of another artefact.
    notes : list of str
        How it came to its place, where that is worth a word.
    """

    file: str
    sha256: str
    tables: list[str]
    bytes: int
    rows: int
    dim: int
    row_type: str
    index_kind: str
    absent_key: str
    default_rows: int
    shared: bool
    notes: list[str] = field(default_factory=list)


def describe_table_files(files: Mapping[str, TableFile]) -> list[TableRecord]:
    """Describe the files of a model's tables, those by node of the graph, each file once."""
    found: dict[str, TableRecord] = {}
    for node, file in sorted(files.items()):
        if file.name in found:
            found[file.name].tables.append(node)
            continue
        header = file.header
        found[file.name] = TableRecord(
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
            shared=file.path.stat().st_nlink > 1,
            notes=list(file.notes),
        )
    return list(found.values())
