# SPDX-License-Identifier: Apache-2.0
"""Check that two exports differ only in weights that a delta can change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graph_tools.errors import ConversionError
from graph_tools.graph import Node
from graph_tools.model.model import HashTableContent, Model
from graph_tools.tensors import TensorSource

_NAMES = {"shared_name", "container", "config_proto", "executor_type"}


def check_same_graph(old: Model, new: Model) -> None:
    """Compare everything but the content of variables and sparse tables.

    Raises
    ------
    ConversionError
        Something differs; the message names it.
    """
    for what, before, now in (
        ("signature", _signatures(old), _signatures(new)),
        ("node", _nodes(old), _nodes(new)),
        ("function", _functions(old), _functions(new)),
        ("asset", _assets(old), _assets(new)),
        ("variable", _variables(old.variables), _variables(new.variables)),
        ("sparse table", dict.fromkeys(old.sparse_tables), dict.fromkeys(new.sparse_tables)),
        ("hash table", _hash_tables(old.hash_tables), _hash_tables(new.hash_tables)),
    ):
        for name in sorted(before.keys() | now.keys()):
            if name not in before or name not in now or before[name] != now[name]:
                raise ConversionError(f"{new.path}: another {what} '{name}', expected the graph of {old.path}")


def _signatures(model: Model) -> dict[str, Any]:
    return {
        name: {
            side: {key: (str(end.tensor), end.dtype, end.shape) for key, end in getattr(signature, side).items()}
            for side in ("inputs", "outputs")
        }
        for name, signature in model.signatures.items()
    }


def _nodes(model: Model) -> dict[str, Any]:
    return {node.name: (node.op, node.inputs, sorted(node.controls), _attributes(model, node)) for node in model.graph}


def _attributes(model: Model, node: Node) -> dict[str, Any]:
    """Return the attributes that decide what a node computes; the path of an asset is none of them."""
    left_out = _NAMES | ({"value"} if node.name in model.assets else set())
    return {name: value for name, value in node.attrs.items() if name not in left_out and not name.startswith("_")}


def _functions(model: Model) -> dict[str, Any]:
    return {name: list(function.node_def) for name, function in model.graph.library.items()}


def _assets(model: Model) -> dict[str, str]:
    return {name: _digest(path) for name, path in model.assets.items()}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _variables(variables: Mapping[str, TensorSource]) -> dict[str, Any]:
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in variables.items()}


def _hash_tables(tables: Mapping[str, HashTableContent]) -> dict[str, Any]:
    return {
        name: (
            table.keys.read().tolist(),
            None if table.values is None else table.values.read().tolist(),
            table.mutable,
        )
        for name, table in tables.items()
    }
