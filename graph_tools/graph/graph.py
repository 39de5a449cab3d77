# SPDX-License-Identifier: Apache-2.0
"""A mutable view of a GraphDef that the readers, passes and writers share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from graph_tools.errors import UnreadableError
from graph_tools.graph.attributes import attr_value, const_attributes
from graph_tools.graph.node import Node, Output

# The server decides placement, colocation names nodes that are removed, and shapes are inferred again.
_DROPPED_ATTRIBUTES = {"_class", "_output_shapes"}


def serving_attributes(attrs: Any) -> dict[str, Any]:
    """Return a node's attributes without those that matter only in the exporting program."""
    return {key: value for key, value in attrs.items() if key not in _DROPPED_ATTRIBUTES}


class Graph:
    """A graph: nodes by name, with their users.

    Every removal has a reason, which `removed` keeps for the report. Functions stay in `library` if they are bodies of
    control flow; calls are inlined before passes run.

    Attributes
    ----------
    nodes : dict of str to Node
    library : dict of str to FunctionDef
    op_defs : dict of str to OpDef
        Ops that TensorFlow does not know, described by the export.
    removed : dict of str to (op, reason)
        The last reason for each name.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.library: dict[str, Any] = {}
        self.op_defs: dict[str, Any] = {}
        self.removed: dict[str, tuple[str, str]] = {}
        self.producer = 0
        self._users: dict[str, dict[str, int]] = {}
        self._counters: dict[str, int] = {}
        self.revision = 0

    # Reading

    def __contains__(self, name: str) -> bool:
        return name in self.nodes

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self.nodes.values()))

    def of(self, *ops: str) -> list[Node]:
        """Return the nodes with one of the given ops."""
        return [node for node in self.nodes.values() if node.op in ops]

    def source(self, output: Output) -> Node:
        """Return the node of an output."""
        return self.nodes[output.node]

    def input(self, node: Node, index: int) -> Node:
        """Return the node of input `index`."""
        return self.nodes[node.inputs[index].node]

    def users(self, name: str) -> list[Node]:
        """Return the nodes that use a node's outputs or run after it, each once."""
        return [self.nodes[user] for user in self._users.get(name, ())]

    def uses(self, output: Output) -> list[tuple[Node, int]]:
        """Return (node, index) for each input that an output feeds."""
        return [
            (user, i) for user in self.users(output.node) for i, source in enumerate(user.inputs) if source == output
        ]

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """Return the names of these nodes and of all nodes that they need, through data and control edges."""
        seen: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                node = self.nodes[name]
                waiting.extend(source.node for source in node.inputs)
                waiting.extend(node.controls)
        return seen

    def ordered(self) -> list[Node]:
        """Return the nodes in an order in which each comes after its inputs; loops of TF 1 are cut at NextIteration."""
        order: list[Node] = []
        state: dict[str, int] = {}
        for root in self.nodes:
            stack = [(root, False)]
            while stack:
                name, left = stack.pop()
                if left:
                    state[name] = 2
                    order.append(self.nodes[name])
                    continue
                if state.get(name):
                    continue
                state[name] = 1
                node = self.nodes[name]
                stack.append((name, True))
                if node.op in {"NextIteration", "RefNextIteration"}:
                    continue
                for before in [*(source.node for source in node.inputs), *node.controls]:
                    if not state.get(before):
                        stack.append((before, False))
        # The NextIteration of a loop comes before its own inputs; this is right, since it closes the cycle.
        return order

    # Changing

    def add(
        self,
        op: str,
        inputs: Iterable[Output] = (),
        *,
        name: str = "",
        controls: Iterable[str] = (),
        attrs: dict[str, Any] | None = None,
        device: str = "",
    ) -> Node:
        """Add a node with an unused name, which is `name` if possible.

        `attrs` values may be AttrValue messages or any value that `attr_value` accepts.
        """
        values = {key: attr_value(value) for key, value in (attrs or {}).items()}
        node = Node(self.fresh_name(name or op), op, list(inputs), list(controls), values, device)
        self._insert(node)
        return node

    def add_const(self, value: Any, name: str = "Const") -> Output:
        """Add a constant from an array, number or string, and return its output."""
        return self.add("Const", name=name, attrs=const_attributes(value)).output()

    def _insert(self, node: Node) -> None:
        self.nodes[node.name] = node
        self._counters.setdefault(node.name, 0)
        for before in [*(source.node for source in node.inputs), *node.controls]:
            self._link(before, node.name)
        self.revision += 1

    def remove(self, name: str, why: str) -> None:
        """Remove a node that nothing uses any more."""
        users = [user for user in self._users.get(name, {}) if user != name]
        if users:
            raise ValueError(f"node '{name}': used by {', '.join(users[:3])}, expected no user at its removal")
        self._drop(name, why)

    def prune(self, keep: Iterable[str], why: str) -> int:
        """Remove every node that `keep` does not need, and return their number."""
        wanted = self.ancestors(keep)
        gone = [name for name in self.nodes if name not in wanted]
        for name in gone:
            self._drop(name, why)
        return len(gone)

    def _drop(self, name: str, why: str) -> None:
        node = self.nodes.pop(name)
        for before in [*(source.node for source in node.inputs), *node.controls]:
            self._unlink(before, name)
        self._users.pop(name, None)
        self.removed[name] = (node.op, why)
        self.revision += 1

    def set_input(self, node: Node, index: int, output: Output) -> None:
        """Connect input `index` of a node to another output."""
        self._unlink(node.inputs[index].node, node.name)
        node.inputs[index] = output
        self._link(output.node, node.name)
        self.revision += 1

    def set_inputs(self, node: Node, inputs: Iterable[Output], controls: Iterable[str] | None = None) -> None:
        """Replace the inputs of a node, and its control inputs unless `controls` is None."""
        for before in [*(source.node for source in node.inputs), *node.controls]:
            self._unlink(before, node.name)
        node.inputs = list(inputs)
        if controls is not None:
            node.controls = list(dict.fromkeys(controls))
        for before in [*(source.node for source in node.inputs), *node.controls]:
            self._link(before, node.name)
        self.revision += 1

    def become(
        self,
        node: Node,
        op: str,
        inputs: Iterable[Output],
        attrs: dict[str, Any],
        controls: Iterable[str] | None = None,
    ) -> None:
        """Change the op of a node and keep its name, so that its users stay connected.

        Control inputs stay unless `controls` is given; `attrs` is as for `add`.
        """
        node.op = op
        node.attrs = {key: attr_value(value) for key, value in attrs.items()}
        self.set_inputs(node, inputs, controls)

    def set_attr(self, node: Node, key: str, value: Any) -> None:
        """Set one attribute; `value` is as for `add`."""
        node.attrs[key] = attr_value(value)
        self.revision += 1

    def rename(self, name: str, wish: str) -> str:
        """Rename a node, update its users, and return the new name."""
        node = self.nodes.pop(name)
        users = self._users.pop(name, {})
        for before in [*(source.node for source in node.inputs), *node.controls]:
            self._unlink(before, name)
        new = node.name = self.fresh_name(wish)
        for user in users:
            renamed = node if user == name else self.nodes[user]
            renamed.inputs = [Output(new, i.port) if i.node == name else i for i in renamed.inputs]
            renamed.controls = [new if control == name else control for control in renamed.controls]
        self._insert(node)
        for user, count in users.items():
            if user != name:
                self._users.setdefault(new, {})[user] = count
        return new

    def replace(self, old: Output, new: Output) -> int:
        """Connect every user of an output to another output, and return the number of changed inputs."""
        uses = self.uses(old)
        for node, index in uses:
            self.set_input(node, index, new)
        return len(uses)

    def replace_control(self, old: str, new: Iterable[str]) -> None:
        """Replace the control input `old` of every node by `new`."""
        for user in self.users(old):
            if old in user.controls:
                controls = [name for name in user.controls if name != old]
                self.set_inputs(user, user.inputs, [*controls, *(name for name in new if name != user.name)])

    def fresh_name(self, wish: str) -> str:
        """Return `wish`, or `wish_1`, `wish_2`, … if that name is or was in use."""
        if wish not in self._counters and wish not in self.removed:
            self._counters[wish] = 0
            return wish
        while True:
            self._counters[wish] = self._counters.get(wish, 0) + 1
            name = f"{wish}_{self._counters[wish]}"
            if name not in self.nodes and name not in self.removed:
                return name

    def _link(self, before: str, user: str) -> None:
        counts = self._users.setdefault(before, {})
        counts[user] = counts.get(user, 0) + 1

    def _unlink(self, before: str, user: str) -> None:
        counts = self._users.get(before)
        if counts and user in counts:
            counts[user] -= 1
            if not counts[user]:
                del counts[user]

    # To and from protocol buffers

    @classmethod
    def from_graph_def(cls, graph_def: Any, where: str = "graph") -> Graph:
        """Read a GraphDef.

        Raises
        ------
        UnreadableError
            A node occurs twice, or an input names a node that does not exist.
        """
        graph = cls()
        graph.producer = graph_def.versions.producer
        graph.library = {function.signature.name: function for function in graph_def.library.function}
        for definition in graph_def.node:
            if definition.name in graph.nodes:
                found = f"node '{definition.name}' is there twice"
                raise UnreadableError(f"{where}: {found}, expected names of one node each")
            inputs = [Output.parse(text) for text in definition.input if not text.startswith("^")]
            controls = [text[1:] for text in definition.input if text.startswith("^")]
            graph._insert(Node(definition.name, definition.op, inputs, controls, serving_attributes(definition.attr)))
        for node in graph.nodes.values():
            for before in [*(source.node for source in node.inputs), *node.controls]:
                if before not in graph.nodes:
                    raise UnreadableError(f"{where}: node '{node.name}' has the input '{before}', expected a node")
        return graph

    def to_graph_def(self) -> Any:
        """Write a GraphDef, in an order in which TensorFlow can import it node by node."""
        from tensorflow.core.framework import graph_pb2

        graph_def = graph_pb2.GraphDef()
        graph_def.versions.producer = self.producer
        for node in self.ordered():
            definition = graph_def.node.add(name=node.name, op=node.op, device=node.device)
            definition.input.extend(str(i) if i.port else i.node for i in node.inputs)
            definition.input.extend(f"^{name}" for name in node.controls)
            for key, value in node.attrs.items():
                definition.attr[key].CopyFrom(value)
        for function in self.library.values():
            graph_def.library.function.add().CopyFrom(function)
        return graph_def
