# SPDX-License-Identifier: Apache-2.0
"""Find the keys and rows of a TFRA hash table: in tensors of the checkpoint, or in raw files."""

from __future__ import annotations

import re
from pathlib import Path

from graph_tools.errors import UnreadableError
from graph_tools.graph import Node, attribute
from graph_tools.model import Model
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.readers.families.lookups import handle_node
from graph_tools.readers.families.saved import KEYS, VALUES, numpy_type, read_part, row_length
from graph_tools.readers.restore import restored_tensor
from graph_tools.readers.tfra_files import FOLDER, find_tables, open_table
from graph_tools.tables.checks import check_shapes

HANDLES = {"TFRA>CuckooHashTableOfTensors", "TFRA>HkvHashTableOfTensors"}
_IMPORTS = ("TFRA>CuckooHashTableImport", "TFRA>HkvHashTableImport")

# `item_emb_mht_1of2`: the first of two shards of the variable item/emb.
_SHARD = re.compile(r"^(?P<stem>.+)_mht_(?P<shard>\d+)of(?P<shards>\d+)(_rank\d+_size\d+)?(?:_\d+)?$")
# Name of a variable in the object graph, in which "/" is written as ".S", and "." as "..".
_TRACKED = re.compile(r"tables_of_(?P<name>[^/]+)/\d+/\.ATTRIBUTES/")

_UNSET = Absent(None, "TFRA: to be set from the lookups")


def read_table(model: Model, handle: Node, folder: Path | None) -> SparseTable:
    """Read the table of a handle and add it to the model; the caller sets its absent value.

    Raises
    ------
    UnreadableError
        Its keys and rows are neither in the checkpoint nor in files.
    """
    found = _tensors(model, handle) if not _has_files(folder, handle) else None
    name = _name(model, handle)
    key_dtype, dtype = numpy_type(handle, "key_dtype"), numpy_type(handle, "value_dtype")
    dim = row_length(handle, "value_shape")
    if found is not None:
        parts = [read_part(model.checkpoint, *found)]
        model.tensor_names[name] = found
    else:
        parts = _from_files(model, handle, folder, dim)
    table = SparseTable(name, "tfra", key_dtype, dim, dtype, parts, _UNSET)
    check_shapes(table, may_be_empty=True)
    if name in model.sparse_tables:
        raise UnreadableError(f"{model.path}: two tables are called '{name}', expected a name for each")
    model.sparse_tables[name] = table
    return table


def drop_other_tables(model: Model, used: set[str]) -> None:
    """Record why the tensors of all other TFRA tables are not needed."""
    for handle in model.graph.of(*HANDLES):
        found = _tensors(model, handle) if handle.name not in used else None
        for tensor in found or ():
            model.unused_tensors[tensor] = "rows of a table that no output looks up, such as optimizer slots"


def _tensors(model: Model, handle: Node) -> tuple[str, str] | None:
    """Return the tensors from which a table is restored, found by the restore ops, else by name; else None."""
    if model.checkpoint is None:
        return None
    for node in model.graph.of(*_IMPORTS):
        if handle_node(model.graph, node.inputs[0]).name == handle.name:
            keys, values = (restored_tensor(model.graph, source) for source in node.inputs[1:3])
            if keys and values and keys[0] in model.checkpoint:
                return keys[0], values[0]
    for name in (attribute(handle, "shared_name", b"").decode(), handle.name):
        if name and name + KEYS in model.checkpoint:
            return name + KEYS, name + VALUES
    return None


def _name(model: Model, handle: Node) -> str:
    """Return a table's name in the training program, with the number of its shard if there are several."""
    match = _SHARD.match(_last(handle.name)) or _SHARD.match(attribute(handle, "shared_name", b"").decode())
    if match is None:
        return handle.name
    stem = match["stem"]
    for name in model.checkpoint.names() if model.checkpoint is not None else ():
        tracked = _TRACKED.search(name)
        if tracked:
            written = re.sub(r"\.(.)", lambda escape: "/" if escape[1] == "S" else escape[1], tracked["name"])
            if written.replace("/", "_") == stem:
                stem = written
                break
    return stem if match["shards"] == "1" else f"{stem}/part_{int(match['shard']) - 1}"


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _has_files(folder: Path | None, handle: Node) -> bool:
    """Return whether the user's folder has a table's files, which are then used instead of the tensors."""
    match = _SHARD.match(_last(handle.name))
    places = (folder / FOLDER, folder) if folder is not None else ()
    return any(match is not None and place.is_dir() and match["stem"] in find_tables(place) for place in places)


def _from_files(model: Model, handle: Node, given: Path | None, dim: int) -> list[Part]:
    """Open a shard that TFRA's FileSystemSaver wrote, from the user's folder or from the SavedModel."""
    where = [given / FOLDER, given] if given is not None else [model.path / "variables" / FOLDER]
    folder = next((folder for folder in where if folder.is_dir() and find_tables(folder)), None)
    match = _SHARD.match(_last(handle.name))
    if folder is None or match is None:
        looked = f" or in {where[-1]}" if given is not None else f" or in {where[0]}"
        raise UnreadableError(
            f"{model.path}: no keys of the table '{handle.name}' in its checkpoint{looked}, expected '{handle.name}"
            f"{KEYS}' or files of TFRA's FileSystemSaver"
        )
    key_dtype, dtype = numpy_type(handle, "key_dtype"), numpy_type(handle, "value_dtype")
    stem, number, shards = match["stem"], int(match["shard"]) - 1, int(match["shards"])
    layout = find_tables(folder).get(stem)
    if layout is not None and layout.shards != shards:
        raise UnreadableError(f"{folder}: table {stem} has {layout.shards} shards, expected {shards} as in the graph")
    table = open_table(folder, stem, dim=dim, key_dtype=key_dtype, value_dtype=dtype)
    # Parts are ordered by process, then by shard: one shard of every process forms a table of the graph.
    return table.parts[number::shards]
