# SPDX-License-Identifier: Apache-2.0
"""Read TensorNet: a pull that fills variables with the rows of a request, and tables in `sparse_table/<handle>`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import Node, Output, attribute, constant
from graph_tools.graph.sparse_lookup import add_lookup
from graph_tools.model import Model
from graph_tools.model.tables import SparseTable
from graph_tools.readers import tensornet_files
from graph_tools.readers.families.lookups import replace_output, served_nodes
from graph_tools.readers.restore import handle_of
from graph_tools.tables.absent_keys import how_to_choose, requested_value

PULL = "SparseTablePull"
_GATHERS = {"ResourceGather", "GatherV2", "Gather"}
_ENDS = {"none": np.zeros(1, np.int64), "axis": np.array(0, np.int32)}


class TensorNet:
    """Reads SparseTablePull and the gathers that follow it.

    A pull numbers the distinct signs of each feature in order of appearance, writes their rows into the feature's
    variable and returns the numbers. Gathers from the variable then read rows by number.

    Before: `signs → SparseTablePull(variable) → numbers → … → ids → ResourceGather(variable) → rows`.

    After: `signs → Unique → numbers → … → ids → GatherV2(distinct signs) → SparseLookup → rows`.

    Graphs without a pull, such as exports of `sub_model`, contain no ops of TensorNet.
    """

    name = "TensorNet"

    def matches(self, model: Model) -> bool:
        return bool(model.graph.of(PULL))

    def normalize(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        pulls = served_nodes(model, {PULL})
        opened = _Tables(model, tables, absent, {int(attribute(pull, "table_handle")) for pull in pulls})
        for pull in pulls:
            _convert(model, pull, opened)


def _convert(model: Model, pull: Node, tables: _Tables) -> None:
    count = _count(pull)
    variables = [handle_of(model.graph, handle) for handle in pull.inputs[:count]]
    for index, variable in enumerate(variables):
        if variable in variables[:index]:
            raise ConversionError(f"node '{pull.name}': fills '{variable}' twice, expected a variable for each feature")
        table = tables.of_pull(pull, _row_length(model, variable))
        _convert_feature(model, pull, index, pull.inputs[count + index], variable, table)
    # Nodes that waited until the rows were in the variables no longer need to wait.
    model.graph.replace_control(pull.name, [])
    model.graph.remove(pull.name, "its rows are looked up where they are used")


def _convert_feature(model: Model, pull: Node, index: int, signs: Output, variable: str, table: SparseTable) -> None:
    import tensorflow as tf

    graph = model.graph
    gathers = _gathers_of(model, pull, variable)
    scope = f"{pull.name}/{index}"
    attrs: dict[str, Any] = {"T": tf.int64, "out_idx": tf.int64}
    distinct = graph.add("Unique", [signs], name=f"{scope}/distinct", attrs=attrs)
    numbers = distinct.output(1)
    replace_output(model, pull.output(index), numbers)
    # A request without signs still gathers row 0 if empty rows are filled; that row is masked afterwards.
    ends = [graph.add_const(value, f"{scope}/{name}") for name, value in _ENDS.items()]
    attrs = {"N": 2, "T": tf.int64, "Tidx": tf.int32}
    padded = graph.add("ConcatV2", [distinct.output(), *ends], name=f"{scope}/signs", attrs=attrs).output()
    for gather in gathers:
        ids = gather.inputs[1]
        source = graph.source(ids)
        if ids == numbers:
            keys = signs
        elif source.op == "Unique" and ids.port == 0 and source.inputs[0] == numbers:
            # The distinct numbers are 0, 1, 2, … in order.
            keys = distinct.output()
        else:
            attrs = {"Tparams": tf.int64, "Tindices": attribute(gather, "Tindices"), "Taxis": tf.int32, "batch_dims": 0}
            keys = graph.add("GatherV2", [padded, ids, ends[1]], name=f"{scope}/keys", attrs=attrs).output()
        rows = add_lookup(graph, table.name, keys, tf.int64, table.dim, table.dtype, name=f"{gather.name}/rows")
        replace_output(model, gather.output(), rows.output())


def _gathers_of(model: Model, pull: Node, variable: str) -> list[Node]:
    """Return the gathers from a variable that a pull fills.

    Raises
    ------
    ConversionError
        A served node reads the variable in another way, or after more than one pull.
    """
    graph = model.graph
    needed = graph.ancestors(model.outputs())
    found = []
    for node, index in _readers(model, variable, needed):
        if node.op == PULL:
            continue
        if node.op not in _GATHERS or index != 0 or not _takes_rows(model, node):
            raise ConversionError(
                f"node '{node.name}' ({node.op}): reads the variable '{variable}' that '{pull.name}' fills, expected "
                f"only gathers of its rows"
            )
        before = graph.ancestors([node.name])
        pulls = [
            pull.name
            for pull in graph.of(PULL)
            if pull.name in before and any(handle_of(graph, each) == variable for each in pull.inputs[: _count(pull)])
        ]
        if len(pulls) > 1 or (not pulls and node.name in needed):
            raise ConversionError(
                f"node '{node.name}': gathers from '{variable}' after {len(pulls)} pulls, expected one of them"
            )
        if pulls == [pull.name]:
            found.append(node)
    return found


def _readers(model: Model, variable: str, needed: set[str]) -> list[tuple[Node, int]]:
    """Return (node, input) of the served nodes that use a variable or its value, following nodes that pass it on."""
    graph = model.graph
    found = []
    waiting = [Output(variable)]
    while waiting:
        for node, index in graph.uses(waiting.pop()):
            if node.name not in needed:
                continue
            if node.op in {"Identity", "ReadVariableOp"}:
                waiting.append(node.output())
            else:
                found.append((node, index))
    return found


def _takes_rows(model: Model, node: Node) -> bool:
    """Return whether a gather takes rows along the first axis."""
    if attribute(node, "batch_dims", 0):
        return False
    axis = constant(model.graph, node.inputs[2]) if node.op == "GatherV2" else np.array(0)
    return axis is not None and int(axis) == 0


def _count(pull: Node) -> int:
    return int(attribute(pull, "N"))


def _row_length(model: Model, variable: str) -> int | None:
    """Return the second size of a variable [rows at most, dim], or None if it is not known."""
    if variable in model.variables:
        shape: Any = model.variables[variable].shape
    else:
        shape = attribute(model.graph[variable], "shape")
    return int(shape[1]) if shape is not None and len(shape) == 2 and shape[1] is not None else None


class _Tables:
    """The tables that pulls name by handle."""

    def __init__(self, model: Model, folder: Path | None, absent: dict[str, str], handles: set[int]) -> None:
        self.model = model
        self.absent = absent
        self.handles = handles
        self.places = [folder] if folder is not None else [model.path, model.path.parent]
        self.opened: dict[Path, SparseTable] = {}

    def of_pull(self, pull: Node, row_length: int | None) -> SparseTable:
        folder = self._folder(pull)
        if folder not in self.opened:
            self.opened[folder] = self._open(folder, row_length)
        table = self.opened[folder]
        if row_length is not None and row_length != table.dim:
            raise UnreadableError(
                f"table {table.name}: rows of {table.dim}, expected {row_length} as the variable that node "
                f"'{pull.name}' fills"
            )
        return table

    def _open(self, folder: Path, row_length: int | None) -> SparseTable:
        table = tensornet_files.open_table(folder.name, folder)
        if row_length == table.dim + 2:
            # Two more than the weights: show and click, which the server adds with use_cvm.
            table = tensornet_files.open_table(folder.name, folder, tensornet_files.Options(use_cvm=True))
        if requested_value(self.absent, table.name) is None:
            raise ConversionError(
                f"table {table.name}: TensorNet's server makes a row, random or zeros, for a sign that it has not "
                f"seen, and the export does not say which; expected {how_to_choose(table.name)}, or "
                f"{table.name}=default for zeros, as its predictions have"
            )
        self.model.sparse_tables[table.name] = table
        return table

    def _folder(self, pull: Node) -> Path:
        """Return the folder of a pull's table: named after its handle, or after a layer whose scope has the pull."""
        handle = int(attribute(pull, "table_handle"))
        for place in self.places:
            below = place / "sparse_table"
            if not (below.is_dir() or (place.is_dir() and place in self.places[:1])):
                continue
            found = tensornet_files.find_tables(place)
            if str(handle) in found:
                return found[str(handle)]
            scoped = [name for name in found if name in pull.name.split("/")]
            if len(scoped) == 1:
                return found[scoped[0]]
            if len(found) == len(self.handles) == 1:
                return next(iter(found.values()))
            if found:
                raise UnreadableError(
                    f"{below if below.is_dir() else place}: tables {', '.join(found)}, expected a folder '{handle}' "
                    f"for the table_handle of node '{pull.name}'"
                )
        looked = " or ".join(str(place / "sparse_table") for place in self.places)
        raise UnreadableError(
            f"{looked}: no tables, expected the folder of table {handle} that node '{pull.name}' pulls from, or "
            f"--checkpoint with the folder that contains sparse_table"
        )
