# SPDX-License-Identifier: Apache-2.0
"""Make the ops of a fused graph read their weights and rows at one epoch of a live model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.live import LiveRows, TableOrigin
from graph_tools.model import Model
from graph_tools.tables.add_table import TABLE

GROUP, INITIALIZER = "RecEmbeddingGroup", "RecInitializeLiveModel"
#: Ops with weights: the number of inputs before these, and the attribute with the number of further ones.
_BEFORE_WEIGHTS = {
    "RecDenseTower": (0, "num_inputs"),
    "RecCrossNetwork": (1, None),
    "RecTargetAttention": (2, "num_masks"),
    "RecRecurrentLayer": (1, "num_masks"),
}


@dataclass
class LiveGraph:
    """What a graph needs to follow changes.

    Attributes
    ----------
    handle : Output
        The live model.
    formulas : list of Output
        The formulas in use; number n has the name `f<n>`.
    tables : list of str
        The nodes of the tables that change.
    """

    handle: Output
    formulas: list[Output]
    tables: list[str]


def origin_of(model: Model, table: str) -> TableOrigin | None:
    """Return the source of the rows of a table, by its node; None if they never change."""
    spec = model.embedding_tables.get(table)
    return None if spec is None else spec.origin


def nothing_changes(model: Model) -> ConversionError:
    """Return the error for a model that is served without variables and tables."""
    return ConversionError(
        f"{model.path}: serves no float32 variable and no table, expected some that a trainer changes"
    )


def add_live_ops(model: Model, formulas: dict[str, Output]) -> LiveGraph:
    """Add a view of the live model to each op that reads weights or rows which may change.

    Parameters
    ----------
    model : Model
    formulas : dict of str to Output
        The formulas of its variables, by handle.

    Raises
    ------
    ConversionError
        Something that may change is used by an op that cannot follow it, or nothing may change.
    """
    _check_lookups(model)
    return _Rewrite(model, formulas).run()


def _check_lookups(model: Model) -> None:
    """Raise `ConversionError` if rows that a trainer changes by key are looked up with native ops."""
    for name, tensor in model.variables.items():
        users = model.graph.users(name) if isinstance(tensor, LiveRows) and name in model.graph else []
        if isinstance(tensor, LiveRows) and users:
            raise ConversionError(
                f"table '{tensor.source.name}': looked up by '{users[0].name}' ({users[0].op}), which follows no "
                "changes, expected a lookup that is fused; --explain tells why it is not"
            )


class _Rewrite:
    def __init__(self, model: Model, formulas: dict[str, Output]) -> None:
        self.model, self.graph = model, model.graph
        self._of = formulas
        self._numbers: dict[Output, int] = {}

    def run(self) -> LiveGraph:
        graph = self.graph
        tables = [node.name for node in graph.of(TABLE) if origin_of(self.model, node.name) is not None]
        attrs = {"container": "", "shared_name": ""}
        handle = graph.add("RecLiveModel", name="live", attrs=attrs).output()
        view = graph.add("RecPinView", [handle], name="live/view").output()
        for node in graph.of(*_BEFORE_WEIGHTS):
            self._view_weights(node, view)
        for node in graph.of(GROUP):
            self._view_group(node, view, tables)
        for name in self._of:
            if name in graph:
                self._view_variable(name, view)
        if not tables and not self._numbers:
            raise nothing_changes(self.model)
        return LiveGraph(handle, list(self._numbers), tables)

    def _name(self, handle: str) -> str:
        """Return the name of the formula of a variable."""
        return self._number(self._of[handle])

    def _number(self, formula: Output) -> str:
        return f"f{self._numbers.setdefault(formula, len(self._numbers))}"

    def _add_view(self, node: Node, view: Output, formulas: list[str]) -> None:
        self.graph.set_inputs(node, [*node.inputs, view])
        self.graph.set_attr(node, "num_views", 1)
        self.graph.set_attr(node, "formulas", formulas)

    def _view_group(self, node: Node, view: Output, tables: list[str]) -> None:
        assert self.model.live is not None
        formulas = self.model.live.of_plans.get(node.name, [])
        names = ["" if formula is None else self._number(formula) for formula in formulas]
        if any(names) or any(source.node in tables for source in node.inputs):
            self._add_view(node, view, names if any(names) else [])

    def _view_weights(self, node: Node, view: Output) -> None:
        names: list[str] = []
        for index in _weight_inputs(node):
            handle = self._handle(node.inputs[index])
            names.append("" if handle is None else self._name(handle))
            # Identities between a read and the op may have other users, which get the view's value.
            self.graph.set_input(node, index, skip(self.graph, node.inputs[index]))
        if any(names):
            self._add_view(node, view, names)

    def _handle(self, output: Output) -> str | None:
        """Return the variable that an output is the value of, if it has a formula."""
        node = self.graph[skip(self.graph, output).node]
        handle = node.inputs[0].node if node.op == "ReadVariableOp" else ""
        return handle if handle in self._of else None

    def _view_variable(self, name: str, view: Output) -> None:
        """Replace the reads of a variable by ops that have no view of their own."""
        graph = self.graph
        made: Output | None = None
        for user in graph.users(name):
            readers = [user] if user.op == "ResourceGather" else list(self._other_readers(user, name))
            if not readers:
                continue
            if made is None:
                attrs = {"variable": self._name(name), "shape": attribute(graph[name], "shape")}
                made = graph.add("RecViewVariable", [view], name=f"{name}/view", attrs=attrs).output()
            for reader in readers:
                self._read_view(reader, user, made)

    def _other_readers(self, read: Node, name: str) -> Iterator[Node]:
        """Yield the nodes that use a read of a variable otherwise than as a weight; the read itself if clients do."""
        if read.op != "ReadVariableOp":
            raise ConversionError(
                f"variable '{name}': used by '{read.name}' ({read.op}), expected only reads, which follow changes"
            )
        if read.name in self.model.roots():
            yield read
            return
        for user in self.graph.users(read.name):
            places = {index for index, source in enumerate(user.inputs) if source.node == read.name}
            weights = set(_weight_inputs(user)) if user.op in _BEFORE_WEIGHTS else set()
            if places - weights:
                yield user

    def _read_view(self, reader: Node, read: Node, value: Output) -> None:
        graph = self.graph
        if reader.op == "ResourceGather":
            axis = graph.add_const(np.array(0, np.int32), f"{reader.name}/axis")
            attrs = {
                "Tparams": np.float32, "Tindices": attribute(reader, "Tindices"), "Taxis": np.int32,
                "batch_dims": attribute(reader, "batch_dims", 0),
            }  # fmt: skip
            graph.become(reader, "GatherV2", [value, reader.inputs[1], axis], attrs)
        elif reader is read:
            graph.become(reader, "Identity", [value], {"T": np.float32})
        else:
            weights = set(_weight_inputs(reader)) if reader.op in _BEFORE_WEIGHTS else set()
            for index, source in enumerate(reader.inputs):
                if source.node == read.name and index not in weights:
                    graph.set_input(reader, index, value)


def _weight_inputs(node: Node) -> range:
    """Return the numbers of the inputs of an op that are weights."""
    fixed, count = _BEFORE_WEIGHTS[node.op]
    end = len(node.inputs) - int(attribute(node, "num_views", 0))
    return range(fixed + (0 if count is None else int(attribute(node, count, 0))), end)
