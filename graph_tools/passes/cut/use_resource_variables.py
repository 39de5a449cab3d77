# SPDX-License-Identifier: Apache-2.0
"""Turn TF 1's reference variables and reference tables into resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graph_tools.graph import Node, attribute, op_def, with_defaults
from graph_tools.model import Model
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass

_VARIABLES = ("VariableV2", "Variable")
_ASSIGNS = {"Assign": "AssignVariableOp", "AssignAdd": "AssignAddVariableOp", "AssignSub": "AssignSubVariableOp"}
_TABLES = ("HashTable", "MutableHashTable", "MutableDenseHashTable", "MutableHashTableOfTensors")
_TABLE_USERS = (
    "InitializeTable", "InitializeTableFromTextFile", "LookupTableFind", "LookupTableSize", "LookupTableInsert",
    "LookupTableImport", "LookupTableExport",
)  # fmt: skip


class UseResourceVariables(SitePass[None]):
    """Turn reference variables and tables into resources of the same name, which executors and tools support better.

    Before: `VariableV2 w → Identity w/read → MatMul`, `Assign(w, value)`, `HashTable → LookupTableFind`.
    After: `VarHandleOp w → ReadVariableOp w/read → MatMul`, `AssignVariableOp(w, value)`, `HashTableV2 →
    LookupTableFindV2`.

    A reference is read at its use, and a resource at its ReadVariableOp. A variable that is written while it is served
    would therefore be read at another moment, so it stays a reference.
    """

    name = "use_resource_variables"

    def candidates(self, model: Model) -> Iterable[str]:
        return [node.name for node in model.graph.of(*_VARIABLES, *_TABLES)]

    def match(self, model: Model, site: str) -> Outcome[None]:
        graph = model.graph
        node = graph[site]
        for user in graph.users(site):
            if not any(source.node == site for source in user.inputs):
                continue
            if node.op in _TABLES:
                if user.op not in _TABLE_USERS:
                    return Refused(f"'{user.name}' ({user.op}) uses the reference to the table, expected a lookup")
            elif user.op in _ASSIGNS and user.inputs[0].node == site:
                if any(source.node == user.name for after in graph.users(user.name) for source in after.inputs):
                    return Refused(f"'{user.name}' ({user.op}) passes the reference on, expected one that only assigns")
            elif _takes_reference(model, user, site):
                return Refused(f"'{user.name}' ({user.op}) uses the reference, expected a read or an assignment")
        if site in self._served_writes(model):
            return Refused("it is assigned while it is served, expected one that is only read")
        return Found(None)

    def _served_writes(self, model: Model) -> set[str]:
        """Return the names of the variables that are written by a node that an output needs."""
        graph = model.graph
        needed = graph.ancestors(model.outputs())
        return {graph[name].inputs[0].node for name in needed if graph[name].op in _ASSIGNS}

    def rewrite(self, model: Model, site: str, found: None) -> None:
        node = model.graph[site]
        if node.op in _TABLES:
            self._rewrite_table(model, node)
        else:
            self._rewrite_variable(model, node)

    def _rewrite_table(self, model: Model, node: Node) -> None:
        graph = model.graph
        attrs = dict(node.attrs)
        if not attribute(node, "shared_name"):
            attrs["shared_name"] = node.name
        graph.become(node, node.op + "V2", [], attrs)
        for user in graph.users(node.name):
            if user.op in _TABLE_USERS:
                graph.become(user, user.op + "V2", user.inputs, user.attrs)

    def _rewrite_variable(self, model: Model, node: Node) -> None:
        graph = model.graph
        dtype = node.attrs["dtype"]
        attrs: dict[str, Any] = {
            key: node.attrs[key] for key in ("dtype", "shape", "container", "shared_name") if key in node.attrs
        }
        if not attribute(node, "shared_name"):
            attrs["shared_name"] = node.name
        graph.become(node, "VarHandleOp", [], attrs)
        read = None
        for user in graph.users(node.name):
            if user.op in _ASSIGNS and user.inputs and user.inputs[0].node == node.name:
                graph.become(user, _ASSIGNS[user.op], user.inputs, {"dtype": dtype})
            elif user.op == "Identity" and user.inputs[0].node == node.name:
                graph.become(user, "ReadVariableOp", user.inputs, {"dtype": dtype})
            else:
                for index, source in enumerate(user.inputs):
                    if source.node == node.name:
                        if read is None:
                            name = f"{node.name}/Read/ReadVariableOp"
                            read = graph.add("ReadVariableOp", [node.output()], name=name, attrs={"dtype": dtype})
                        graph.set_input(user, index, read.output())


def _takes_reference(model: Model, user: Node, variable: str) -> bool:
    """Return whether a node needs the variable itself, not only its value."""
    described = op_def(user.op, model.graph.op_defs)
    if described is None:
        return True
    attrs, index = with_defaults(described, user.attrs), 0
    for argument in described.input_arg:
        if argument.number_attr:
            length = attrs[argument.number_attr].i
        elif argument.type_list_attr:
            length = len(attrs[argument.type_list_attr].list.type)
        else:
            length = 1
        if argument.is_ref and any(source.node == variable for source in user.inputs[index : index + length]):
            return True
        index += length
    return False
