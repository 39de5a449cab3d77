# SPDX-License-Identifier: Apache-2.0
"""Find the ops of `op_list`, which do more than compute, that a request or the start of a SavedModel can reach.

The check covers what runs: everything that a served signature or the initializer depends on, by data, by control and
through functions. It does not look behind the inputs of a signature. Savers and their restore ops are reached by
neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from serving_proxy.errors import DeniedError, InvalidError
from serving_proxy.gates.op_list import CACHES, FILE_INPUTS, NAMES_NOTHING, OPS

_INIT = "__saved_model_init_op"
_NOT_SERVED = "__saved_model_train_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_PASSES_ON = frozenset({"Identity", "IdentityN", "EnsureShape", "Reshape", "ExpandDims", "ReadVariableOp"})
_VARIABLE = "VarHandleOp"
_ASKS_OF_VARIABLES = frozenset({"ReadVariableOp", "VarIsInitializedOp"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_MOST_NAMED = 6
# Largest number of calls for which the arguments that are paths of assets are distinguished. In a graph that was made
# to have more, no argument counts as such a path.
_MOST_CALLS = 10_000


@dataclass(frozen=True)
class Reached:
    """An op of the list, and how it is reached."""

    op: str
    node: str
    root: str

    def __str__(self) -> str:
        return f"{self.root} reaches {self.op} '{self.node}', which {OPS[self.op]}"


def check_allowed(names: Iterable[str], option: str = "--allow-op") -> tuple[str, ...]:
    """Return names of ops, sorted, or raise `InvalidError` if one needs no permission."""
    found = tuple(sorted(set(names)))
    for name in found:
        if name not in OPS:
            raise InvalidError(f"{option} '{name[:80]}': expected an op that is refused, such as ReadFile or PyFunc")
    return found


def check_ops(named: str, graph: Any, allowed: Collection[str]) -> tuple[str, ...]:
    """Return the ops of the list that a graph reaches, if all of them are allowed.

    Parameters
    ----------
    named : str
        The model, for the message.
    graph : MetaGraphDef
    allowed : collection of str

    Raises
    ------
    DeniedError
        An op is not allowed.
    """
    found = reached_ops(graph)
    refused = {use.op: use for use in reversed(found) if use.op not in allowed}
    if refused:
        shown = sorted(refused.values(), key=lambda use: use.op)
        more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
        said = "; ".join(map(str, shown[:_MOST_NAMED]))
        option = " ".join(f"--allow-op {use.op}" for use in shown)
        raise DeniedError(f"model {named}: {said}{more}, expected a model that only computes; {option} permits it")
    return tuple(sorted({use.op for use in found}))


def reached_ops(graph: Any) -> list[Reached]:
    """Return the ops of the list that a `MetaGraphDef` reaches; each node appears once for each root."""
    functions = {function.signature.name: function for function in graph.graph_def.library.function}
    nodes = {node.name: node for node in graph.graph_def.node}
    served = {
        name: signature for name, signature in sorted(graph.signature_def.items()) if name not in {_INIT, _NOT_SERVED}
    }
    fed = {name: {_tensor(source.name) for source in signature.inputs.values()} for name, signature in served.items()}
    # Hosts feed the paths of the files while a model is initialized; later the values come from the graph or from
    # clients.
    assets = {_tensor(asset.tensor_info.name)[0] for asset in graph.asset_file_def if _is_inside(asset.filename)}
    later = {asset for asset in assets if asset in nodes and nodes[asset].op == "Placeholder"}
    later -= {node for tensors in fed.values() for node, _ in tensors}
    found: list[Reached] = []
    for name, signature in served.items():
        wanted = {output.name for output in signature.outputs.values()}
        found += _Walk(functions, f"signature '{name}'").run(_main_scope(nodes, functions, later), wanted, fed[name])
    wanted = {output.name for name in (_INIT,) if name in graph.signature_def for output in _outputs(graph, name)}
    for name in _INIT_COLLECTIONS:
        if name in graph.collection_def:
            wanted |= set(graph.collection_def[name].node_list.value)
    found += _Walk(functions, "the initializer").run(_main_scope(nodes, functions, assets), wanted, set())
    return found


def _outputs(graph: Any, name: str) -> list[Any]:
    return list(graph.signature_def[name].outputs.values())


class _Scope:
    """Nodes by name, and the nodes or arguments of a function whose value is the path of an asset."""

    def __init__(self, nodes: dict[str, Any], assets: Collection[str]) -> None:
        self.nodes = nodes
        self.assets = frozenset(assets)


def _main_scope(nodes: dict[str, Any], functions: dict[str, Any], assets: Collection[str]) -> _Scope:
    """Return the graph, in which variables that are only ever assigned paths of assets count as such paths."""
    scope = _Scope(nodes, assets)
    named = Counter(_shared_name(node) for node in nodes.values() if node.op == _VARIABLE)
    named.update(
        _shared_name(node) for function in functions.values() for node in function.node_def if node.op == _VARIABLE
    )
    variables = {name for name, node in nodes.items() if node.op == _VARIABLE and named[_shared_name(node)] == 1}
    given: set[str] = set()
    for node in nodes.values():
        for place, text in enumerate(_data_inputs(node)):
            name = _tensor(text)[0]
            if name not in variables:
                continue
            if node.op == "AssignVariableOp" and place == 0 and _is_asset(scope, _data_inputs(node)[1]):
                given.add(name)
            elif node.op not in _ASKS_OF_VARIABLES:
                # Another op, such as a call of a function, may assign anything.
                variables.discard(name)
    return _Scope(nodes, {*assets, *(given & variables)})


def _shared_name(node: Any) -> str:
    return str(node.attr["shared_name"].s.decode("utf-8", "replace") or node.name)


def _data_inputs(node: Any) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]


class _Walk:
    """The ops that one signature, or the initializer, reaches."""

    def __init__(self, functions: dict[str, Any], root: str) -> None:
        self._functions = functions
        self._root = root
        self._found: list[Reached] = []
        self._seen: set[tuple[str, tuple[bool, ...]]] = set()
        # Functions that are still to be checked; a chain of calls may be longer than Python's stack.
        self._calls: list[tuple[Any, tuple[bool, ...]]] = []

    def run(self, scope: _Scope, wanted: Iterable[str], fed: set[tuple[str, int]]) -> list[Reached]:
        left, seen = [_tensor(name) for name in wanted], set()
        while left:
            tensor = left.pop()
            name = tensor[0]
            if tensor in fed or name in seen or name not in scope.nodes:
                continue
            seen.add(name)
            node = scope.nodes[name]
            self._look(scope, node, node.name)
            left += [_tensor(name) for name in node.input]
        while self._calls:
            function, given = self._calls.pop()
            names = [argument.name for argument in function.signature.input_arg]
            assets = {name for name, is_asset in zip(names, given, strict=False) if is_asset}
            inner = _Scope({node.name: node for node in function.node_def}, assets)
            for node in function.node_def:
                self._look(inner, node, f"{function.signature.name}/{node.name}")
        return self._found

    def _look(self, scope: _Scope, node: Any, named: str) -> None:
        if node.op in OPS and not _is_harmless(scope, node):
            self._found.append(Reached(node.op, named, self._root))
        for name in _functions_of(node):
            function = self._functions.get(name)
            if function is None:
                continue
            passed = node.op in _CALLS or node.op == name
            data = _data_inputs(node) if passed else []
            given = tuple(_is_asset(scope, name) for name in data) if len(self._seen) < _MOST_CALLS else ()
            if (name, given) not in self._seen:
                self._seen.add((name, given))
                self._calls.append((function, given))


def _functions_of(node: Any) -> Iterator[str]:
    """Yield the names of all functions that a node may call."""
    yield node.op
    for attribute in node.attr.values():
        if attribute.WhichOneof("value") == "func":
            yield attribute.func.name
        elif attribute.WhichOneof("value") == "list":
            yield from (function.name for function in attribute.list.func)


def _is_harmless(scope: _Scope, node: Any) -> bool:
    """Return whether an op of the list accesses nothing, or only a file that is one of the model's own assets."""
    data = _data_inputs(node)
    if node.op in NAMES_NOTHING:
        name, values = NAMES_NOTHING[node.op]
        attribute = node.attr.get(name)
        if attribute is None or attribute.WhichOneof("value") == "list":
            return attribute is None or all(value in values for value in attribute.list.s)
        return attribute.s in values
    if node.op in CACHES:
        origin = scope.nodes.get(_origin(scope, data[1])) if len(data) > 1 else None
        return origin is not None and origin.op == "Const" and list(origin.attr["value"].tensor.string_val) == [b""]
    place = FILE_INPUTS.get(node.op)
    return place is not None and len(data) > place and _is_asset(scope, data[place])


def _is_asset(scope: _Scope, text: str) -> bool:
    return _origin(scope, text) in scope.assets


def _origin(scope: _Scope, text: str) -> str:
    """Return the node or argument from which a tensor comes unchanged."""
    name, seen = _tensor(text)[0], set()
    while name in scope.nodes and scope.nodes[name].op in _PASSES_ON and name not in seen:
        seen.add(name)
        node = scope.nodes[name]
        number = _tensor(text)[1] if node.op == "IdentityN" else 0
        data = _data_inputs(node)
        if number >= len(data):
            return ""
        text = data[number]
        name = _tensor(text)[0]
    return name


def _tensor(text: str) -> tuple[str, int]:
    """Parse `^node`, `node`, `node:1`, or, as functions write it, `node:output:1`."""
    name, *rest = text.removeprefix("^").split(":")
    number = rest[-1] if rest else ""
    return name, int(number) if number.isascii() and number.isdecimal() else 0


def _is_inside(filename: str) -> bool:
    """Return whether the name of an asset stays in the folder of the assets."""
    path = PurePosixPath(filename)
    return bool(filename) and not path.is_absolute() and ".." not in path.parts
