# SPDX-License-Identifier: Apache-2.0
"""Find the place of an export in a timeline."""

from __future__ import annotations

from pathlib import Path

from graph_tools.errors import ConversionError
from graph_tools.model import Model
from graph_tools.readers import read_model
from graph_tools.store.lineage import TableContent, digest_weights, read_lineage
from graph_tools.store.segment_layout import LINEAGE_BYTES
from graph_tools.store.timeline import Position


def find_position(path: Path, checkpoint: Path | None = None) -> Position:
    """Return the place of an export in its timeline: that of its `lineage.json`, or the beginning of a new lineage.

    A new lineage is computed from all weights of the export, so that it is the same for each reader of the export.
    Weights from a checkpoint have a lineage of their own.

    Raises
    ------
    UnreadableError, UsageError, ConversionError
        The export cannot be read, or has no weights that can change.
    """
    found = read_lineage(path) if checkpoint is None else None
    return found or Position.start(digest_export(path, checkpoint)[:LINEAGE_BYTES])


def digest_export(path: Path, checkpoint: Path | None = None) -> bytes:
    """Return the SHA-256 of all weights of an export; parameters and errors are those of `find_position`."""
    if checkpoint is None and path.is_file():
        # A frozen graph has constants only, which may be so large that they are not read a second time.
        raise _constant(path)
    # Some exports can only be read with an option for absent keys, whose values do not count.
    return digest_model(read_model(path, checkpoint=checkpoint, absent_key={"*": "zero"}))


def digest_model(model: Model) -> bytes:
    """Return the SHA-256 of all weights of a model as it was read, with all signatures and before any pass.

    The values of absent keys do not count, since options may change them.

    Raises
    ------
    ConversionError
        All weights are constants of the graph.
    """
    files = {name: spec.file.stem for name, spec in model.embedding_tables.items() if spec.file is not None}
    if not (model.variables or model.sparse_tables or files):
        raise _constant(model.path)
    tables = {
        name: TableContent([part.keys for part in table.parts], [part.rows for part in table.parts])
        for name, table in model.sparse_tables.items()
    }
    return digest_weights(model.variables, tables, files)


def _constant(path: Path) -> ConversionError:
    return ConversionError(f"{path}: no variables and no tables, expected weights that can change")
