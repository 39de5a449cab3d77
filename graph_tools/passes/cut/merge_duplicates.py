# SPDX-License-Identifier: Apache-2.0
"""Compute equal nodes once, and store equal constants and variables once."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from graph_tools.graph import CONTROL_FLOW, Graph, Node, Output, const_array, has_effect, op_def, with_defaults
from graph_tools.graph.sparse_lookup import OP as SPARSE_LOOKUP
from graph_tools.live import LiveTensor
from graph_tools.model import Model
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.sweep import sweep
from graph_tools.tensors import Array, TensorSource, rows_per_chunk

_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "LookupTableFindV2", "LookupTableSizeV2"}
_HANDLE_USERS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}


class MergeDuplicates(Pass):
    """Merge equal constants, equal variables, and nodes that compute the same from the same inputs.

    Before: `Cast(x) → a`, `Cast(x) → b`; variables `w` and `w_1` with equal elements.
    After: `Cast(x) → a, b`; variable `w`.

    Embedding tables merge only if one tensor of the checkpoint is restored into both. Random and stateful nodes never
    merge, nor do reads of variables that are written while the model is served.
    """

    name = "merge_duplicates"

    def process(self, model: Model, result: PassResult) -> None:
        self._merge_variables(model, result)
        # If the later of two nodes stays, users of the earlier one become equal after they were compared: repeat.
        while self._merge_nodes(model, result):
            pass

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield variables equal to another, and nodes that compute the same as an earlier one.

        Exceptions are variables that not only reads use, and nodes if a signature names both.
        """
        for _, *others in self._equal_variables(model):
            yield from (name for name in others if self._is_only_read(model, name))
        graph, roots, volatile = model.graph, model.roots(), self._volatile(model)
        seen: dict[Hashable, Node] = {}
        for node in graph.ordered():
            if self._may_merge(graph, node, volatile):
                first = seen.setdefault(_key(graph, node), node)
                if first is not node and not {first.name, node.name} <= roots:
                    yield node.name

    def _merge_variables(self, model: Model, result: PassResult) -> None:
        graph = model.graph
        for first, *others in self._equal_variables(model):
            for copy in others:
                if not self._is_only_read(model, copy):
                    result.refused.append((copy, f"its elements equal those of '{first}', but not only reads use it"))
                    continue
                graph.replace(Output(copy), Output(first))
                graph.replace_control(copy, [first])
                sweep(model, [copy], f"every element equals that of the variable '{first}'")
                result.applied += 1

    def _equal_variables(self, model: Model) -> list[list[str]]:
        """Return the names of variables with equal elements, of those that may merge."""
        graph, kept = model.graph, model.written_variables() | model.roots()
        groups: dict[Hashable, list[str]] = {}
        for name, source in model.variables.items():
            if name in graph and graph[name].op == "VarHandleOp" and name not in kept:
                groups.setdefault((str(source.dtype), source.shape, _table_of(model, name)), []).append(name)
        alike = _equal(groups.values(), lambda name: _digest(model.variables[name], whole=False))
        return _equal(alike, lambda name: _digest(model.variables[name], whole=True))

    def _is_only_read(self, model: Model, name: str) -> bool:
        return all(user.op in _HANDLE_USERS for user in model.graph.users(name))

    def _merge_nodes(self, model: Model, result: PassResult) -> int:
        before = result.applied
        graph, roots = model.graph, model.roots()
        volatile = self._volatile(model)
        seen: dict[Hashable, Node] = {}
        for node in graph.ordered():
            if not self._may_merge(graph, node, volatile):
                continue
            key = _key(graph, node)
            first = seen.setdefault(key, node)
            if first is node:
                continue
            if node.name in roots:
                if first.name in roots:
                    continue
                # Clients know this name, so the earlier node is removed.
                first, node = node, first
                seen[key] = first
            for user in graph.users(node.name):
                inputs = [
                    Output(first.name, source.port) if source.node == node.name else source for source in user.inputs
                ]
                controls = [first.name if name == node.name else name for name in user.controls]
                graph.set_inputs(user, inputs, controls)
            sweep(model, [node.name], f"computes the same as '{first.name}'")
            result.applied += 1
        return result.applied - before

    def _volatile(self, model: Model) -> set[str]:
        """Return the names of the handles whose content changes while the model is served."""
        graph = model.graph
        served = graph.ancestors(model.outputs())
        return {source.node for name in served if has_effect(graph, graph[name]) for source in graph[name].inputs} | {
            node.name for node in graph.of("VariableV2", "Variable")
        }

    def _may_merge(self, graph: Graph, node: Node, volatile: set[str]) -> bool:
        if node.op == SPARSE_LOOKUP:
            return True
        if node.op in CONTROL_FLOW or node.op.startswith("Placeholder") or "Random" in node.op or node.op == "NoOp":
            return False
        if any(source.node in volatile for source in node.inputs) or has_effect(graph, node):
            return False
        described = op_def(node.op)
        return described is not None and (node.op in _READS or not described.is_stateful)


def _table_of(model: Model, name: str) -> Hashable:
    """Return the key that keeps embedding tables apart; equal ones, such as two untrained ones, must not merge."""
    gathered = any(user.op in {"ResourceGather", "ResourceGatherNd"} for user in model.graph.users(name))
    return model.tensor_names.get(name, name) if gathered else None


def _key(graph: Graph, node: Node) -> Hashable:
    """Return a key that is equal for two nodes if they compute the same."""
    controls = tuple(sorted(node.controls))
    if node.op == "Const":
        value = const_array(node)
        return "Const", node.attrs["dtype"].type, value.shape, _bytes(value), controls, node.device
    described = op_def(node.op)
    attrs = node.attrs if described is None else with_defaults(described, node.attrs)
    kept = sorted(
        (key, value.SerializeToString(deterministic=True)) for key, value in attrs.items() if not key.startswith("_")
    )
    return node.op, tuple(kept), tuple(node.inputs), controls, node.device


def _bytes(value: Array) -> bytes:
    """Return the content of an array, or a digest if it is large."""
    if value.dtype == object:
        raw = b"".join(b"%d:%s" % (len(text), text) for text in value.reshape(-1))
    else:
        raw = value.tobytes()
    return raw if len(raw) <= 64 else hashlib.sha256(raw).digest()


def _digest(source: TensorSource, whole: bool) -> bytes:
    """Return a digest of a tensor's elements, or of its first rows only, so that few tensors are read completely.

    Variables that a trainer may change are equal only if they have the same formula.
    """
    if isinstance(source, LiveTensor):
        return source.key.encode()
    digest = hashlib.sha256()
    for chunk in source.chunks(rows_per_chunk(source) if whole else 64):
        digest.update(_bytes(chunk) if chunk.dtype == object else memoryview(chunk.tobytes()))
        if not whole:
            break
    return digest.digest()


def _equal(groups: Iterable[list[str]], digest: Any) -> list[list[str]]:
    """Split groups by a digest and return the parts that have several names."""
    parts: list[list[str]] = []
    for names in groups:
        if len(names) > 1:
            found: dict[bytes, list[str]] = {}
            for name in names:
                found.setdefault(digest(name), []).append(name)
            parts += [part for part in found.values() if len(part) > 1]
    return parts
