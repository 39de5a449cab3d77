# SPDX-License-Identifier: Apache-2.0
"""Read the sparse tables of a training system: from an export with its graph, or from a folder of table files alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from graph_tools.errors import ConversionError, UnreadableError, UsageError
from graph_tools.model.tables import Absent, SparseTable
from graph_tools.readers import hps_files, monolith_files, read_model, tensornet_files, tfra_files
from graph_tools.readers.graph_def import is_graph_def
from graph_tools.readers.monolith_layout import find_entry
from graph_tools.readers.saved_model import is_saved_model
from graph_tools.tables.absent_keys import base_name

# What an absent key reads does not matter to who takes over the rows.
_ABSENT = {"*": "zero"}


def read_tables(source: Path, checkpoint: Path | None = None) -> dict[str, SparseTable]:
    """Return the sparse tables of an export or a folder by name, without rows for absent keys.

    Tables that lookups search part by part are joined.

    Parameters
    ----------
    source : Path
        A SavedModel, a GraphDef or a distributed Monolith export; or files without a graph: the folder of a TFRA
        FileSystemSaver, of TensorNet's `sparse_table`, of a Monolith dump, or of HPS tables, or the JSON configuration
        of an HPS server.
    checkpoint : Path, optional
        As for `read_model`; for a configuration of HPS the folder that its paths refer to.

    Raises
    ------
    UnreadableError
        There is no table, or a file is missing or damaged.
    UsageError
        `checkpoint` is given for a folder of table files.
    ConversionError
        Two different tables have one name.
    """
    entry = find_entry(source)
    if is_saved_model(entry) or is_graph_def(entry):
        found = list(read_model(source, checkpoint=checkpoint, absent_key=dict(_ABSENT)).sparse_tables.values())
        kinds = "DeepRec, TFPlus, TFRA, Monolith, TensorNet or HPS"
        if not found:
            raise UnreadableError(f"{source}: no lookups of sparse tables, expected those of {kinds}")
    elif source.is_file():
        found = hps_files.open_configured(source, checkpoint)
    elif checkpoint is not None:
        raise UsageError(f"--checkpoint {checkpoint}: {source} has no graph, expected no other folder for its tables")
    else:
        found = _of_folder(source)
    tables: dict[str, SparseTable] = {}
    for table in found:
        name = base_name(table.name)
        made = replace(table, name=name, absent=Absent(None, "not converted"))
        tables[name] = _joined(tables[name], made) if name in tables else made
    return tables


def _of_folder(folder: Path) -> list[SparseTable]:
    """Return the tables of a folder without a graph, by the first kind of files that it has."""
    if not folder.is_dir():
        raise UnreadableError(f"{folder}: does not exist, expected an export or a folder with table files")
    for read in _KINDS:
        found = read(folder)
        if found:
            return found
    kinds = "those of TFRA, TensorNet, Monolith or HPS; for DeepRec and TFPlus a SavedModel with --checkpoint"
    raise UnreadableError(f"{folder}: neither a SavedModel nor table files in it, expected {kinds}")


def _tfra(folder: Path) -> list[SparseTable]:
    below = folder / tfra_files.FOLDER
    folder = below if below.is_dir() else folder
    return [tfra_files.open_table(folder, name) for name in tfra_files.find_tables(folder)]


def _tensornet(folder: Path) -> list[SparseTable]:
    return [tensornet_files.open_table(*item) for item in tensornet_files.find_tables(folder).items()]


def _monolith(folder: Path) -> list[SparseTable]:
    dumps = monolith_files.find_dumps(folder)
    return [table for item in dumps.items() for table in monolith_files.open_tables(*item).values()]


def _hps(folder: Path) -> list[SparseTable]:
    return [hps_files.open_table(*item) for item in hps_files.find_tables(folder).items()]


_KINDS: tuple[Callable[[Path], list[SparseTable]], ...] = (_tfra, _tensornet, _monolith, _hps)


def _joined(first: SparseTable, other: SparseTable) -> SparseTable:
    """Return a table with the parts of two; their keys are compared when they are written."""
    for field in ("dim", "dtype", "key_dtype"):
        one, two = getattr(first, field), getattr(other, field)
        if one != two:
            raise ConversionError(f"table {first.name}: parts with {field} {one} and {two}, expected equal ones")
    return replace(first, parts=[*first.parts, *other.parts])
