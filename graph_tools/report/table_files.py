# SPDX-License-Identifier: Apache-2.0
"""What the table files of a fused model hold, read from their headers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graph_tools.errors import UnreadableError
from graph_tools.model import Model
from graph_tools.readers.restore import handle_of

INITIALISER = "RecInitializeEmbeddingTable"


@dataclass
class TableFile:
    """A table file of the artefact.

    Attributes
    ----------
    file : str
        Below the artefact; its name is the SHA-256 of its content.
    sha256 : str
    tables : list of str
        The nodes of the graph that it fills.
    bytes, rows, dim : int
    row_type, index_kind, absent_key : str
        As docs/table_format.md has them; `default`: one of `default_rows`.
    default_rows : int
    shared : bool
        Whether it is one file with that of the table store.
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
    shared: bool = False


def describe_table_files(model: Model) -> list[TableFile]:
    """List the files that the embedding tables of a graph are filled from.

    Raises
    ------
    UnreadableError
        A table has no file, or that is not one of a table.
    """
    graph = model.graph
    tables: dict[Path, list[str]] = {}
    for node in graph.of(INITIALISER):
        name = handle_of(graph, node.inputs[1])
        if name not in model.assets:
            raise UnreadableError(f"{model.path}: table '{node.inputs[0].node}' has no file, expected an asset")
        tables.setdefault(model.assets[name], []).append(handle_of(graph, node.inputs[0]))
    return [_describe(file, sorted(names)) for file, names in sorted(tables.items())]


def _describe(file: Path, tables: list[str]) -> TableFile:
    from graph_tools.store.layout import HEADER_BYTES, unpack

    size = file.stat().st_size
    with file.open("rb") as stream:
        header = unpack(stream.read(HEADER_BYTES), size, str(file))
    return TableFile(
        file=f"assets/{file.name}",
        sha256=file.stem,
        tables=tables,
        bytes=size,
        rows=header.rows,
        dim=header.dim,
        row_type=header.row_type,
        index_kind=header.index_kind,
        absent_key=header.absent_key,
        default_rows=header.default_rows,
    )


def mark_shared(files: list[TableFile], folder: Path) -> None:
    """Say of each file of a written artefact whether it has another link: one in a table store."""
    for one in files:
        one.shared = (folder / one.file).stat().st_nlink > 1
