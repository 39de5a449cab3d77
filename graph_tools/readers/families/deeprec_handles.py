# SPDX-License-Identifier: Apache-2.0
"""Find the handles of DeepRec's tables: the ops that set them, their saved names, and which are slots of others."""

from __future__ import annotations

import re
from typing import NamedTuple

from graph_tools.graph import Node, Output, attribute, constant
from graph_tools.model import Model
from graph_tools.readers.families.lookups import handle_node
from graph_tools.readers.families.partitions import PART
from graph_tools.readers.families.saved import KEYS, checkpoint_of, find_saved

HANDLE = "KvVarHandleOp"

# Op: the inputs that are the table's handle, the handle of the table that it is a slot of, and the rows for new keys.
# The ops are in order of preference.
_SETTERS = {"InitializeKvVariableOp": (0, 1, 2), "KvResourceImportV2": (1, 2, 3), "KvResourceImport": (0, 0, 1)}


class Setter(NamedTuple):
    """A node that initializes or restores a table.

    Attributes
    ----------
    node : Node
    primary : str
        Name of the handle of the table that this one is a slot of; if it is not a slot, its own name.
    value : Output
        Rows for new keys.
    """

    node: Node
    primary: str
    value: Output


class Handles:
    """Collects all handles of a model in one pass."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._setters: dict[str, list[Setter]] = {node.name: [] for node in model.graph.of(HANDLE)}
        for op, (own, primary, value) in _SETTERS.items():
            for node in model.graph.of(op):
                names = [handle_node(model.graph, node.inputs[index]).name for index in (own, primary)]
                if names[0] in self._setters:
                    self._setters[names[0]].append(Setter(node, names[1], node.inputs[value]))
        self._names = {name: self._candidates(model.graph[name]) for name in self._setters}
        self._parts: dict[str, int] = {}
        for names_of_one in self._names.values():
            match = PART.search(names_of_one[0])
            if match:
                whole, number = names_of_one[0][: match.start()], int(match[0].rpartition("_")[2])
                self._parts[whole] = max(self._parts.get(whole, 0), number + 1)

    def __contains__(self, name: object) -> bool:
        return name in self._setters

    def setters(self, handle: Node) -> list[Setter]:
        return self._setters[handle.name]

    def part_count(self, name: str) -> int:
        """Return the number of parts in which the graph looks up a table's keys."""
        return self._parts.get(PART.sub("", name), 1)

    def saved_name(self, handle: Node) -> str:
        """Return the table's name in the checkpoint, whose partitions may differ from those of the graph."""
        bundle = checkpoint_of(self._model, handle)
        for name in self._names[handle.name]:
            whole = PART.sub("", name)
            if any(f"{prefix}{KEYS}" in bundle for prefix in (name, whole, f"{whole}/part_0")):
                return name
        return find_saved(bundle, self._names[handle.name], handle)

    def slots(self, handle: Node, name: str) -> list[str]:
        """Return the optimizer slots of a table: those in the graph, and unknown ones below its name."""
        bundle = checkpoint_of(self._model, handle)
        slots = set()
        for other, setters in self._setters.items():
            if other != handle.name and any(setter.primary == handle.name for setter in setters):
                slots.update([name for name in self._names[other] if name + KEYS in bundle][:1])
        known = {name for names in self._names.values() for name in names}
        below = re.compile(re.escape(name) + r"/(?!part_\d+(-|/))[^/]+" + KEYS + "$")
        for tensor in filter(below.match, bundle.names()):
            if tensor.removesuffix(KEYS) not in known:
                slots.add(tensor.removesuffix(KEYS))
        return sorted(slots)

    def _candidates(self, handle: Node) -> list[str]:
        """Return the names under which a table may be saved, the most certain first."""
        names = []
        for setter in self._setters[handle.name]:
            if setter.node.op == "KvResourceImportV2":
                given = constant(self._model.graph, setter.node.inputs[4])
                names += [value.decode() for value in given.reshape(-1).tolist()] if given is not None else []
        names.append(attribute(handle, "shared_name", b"").decode())
        names.append(handle.name)
        return [name for name in names if name]
