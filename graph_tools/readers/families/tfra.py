# SPDX-License-Identifier: Apache-2.0
"""Read TFRA's dynamic_embedding: hash tables in the TF checkpoint or in TFRA's own files next to it."""

from __future__ import annotations

from pathlib import Path

from graph_tools.errors import ConversionError
from graph_tools.graph import Node
from graph_tools.model import Model
from graph_tools.readers.families.default_inputs import take_absent_value
from graph_tools.readers.families.lookups import handle_node, replace_by_lookup, served_nodes
from graph_tools.readers.families.tfra_tables import HANDLES, drop_other_tables, read_table
from graph_tools.readers.families.tfra_wrappers import strip_wrappers

LOOKUPS = {f"TFRA>{kind}HashTableFind{exists}" for kind in ("Cuckoo", "Hkv") for exists in ("", "WithExists")}
REDIS = {"TFRA>RedisTableFind", "TFRA>RedisTableFindWithExists"}

# TFRA's own kernels of ops that TensorFlow has too, with the same inputs and attributes.
_TWINS = {
    "TFRA>DynamicPartition": "DynamicPartition",
    "TFRA>DynamicStitch": "DynamicStitch",
    "TFRA>DynamicStitchFast": "DynamicStitch",
    "TFRA>ParallelDynamicStitch": "ParallelDynamicStitch",
    "TFRA>SparseSegmentSum": "SparseSegmentSum",
    "TFRA>SparseSegmentSumWithNumSegments": "SparseSegmentSumWithNumSegments",
}


class Tfra:
    """Reads dynamic_embedding Variables.

    Before: `CuckooHashTableOfTensors, keys, default_value → CuckooHashTableFind → rows`.

    After: `keys → SparseLookup → rows`, and a SparseTable for each shard, `<name>/part_K` if there are several.

    Notes
    -----
    The row of an absent key is `default_value`:

    - If it is one row for all keys and lookups, it becomes the table's absent value.
    - If the graph computes it from the key, it stays an input of the lookup.
    - If it is drawn at random, the user must choose the value to serve.

    In exports of a training model, the rows pass through variables that are written and read in the same request; these
    variables are removed.
    """

    name = "TFRA dynamic_embedding"

    def matches(self, model: Model) -> bool:
        return bool(served_nodes(model, LOOKUPS | REDIS))

    def normalize(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        for node in served_nodes(model, REDIS):
            raise ConversionError(
                f"node '{node.name}': the rows of {node.op} are in Redis, expected them in the export; save the table "
                f"with a CuckooHashTable first"
            )
        strip_wrappers(model, LOOKUPS)
        for node in served_nodes(model, set(_TWINS)):
            node.op = _TWINS[node.op]
        lookups: dict[str, list[Node]] = {}
        for node in served_nodes(model, LOOKUPS):
            handle = handle_node(model.graph, node.inputs[0])
            if handle.op not in HANDLES:
                raise ConversionError(f"node '{handle.name}': {handle.op} found, expected a hash table of TFRA")
            _check_exists(model, node)
            lookups.setdefault(handle.name, []).append(node)
        for name, nodes in lookups.items():
            table = read_table(model, model.graph[name], tables)
            defaults = take_absent_value(model, table, nodes, absent, "TFRA")
            for node in nodes:
                replace_by_lookup(model, node, table, node.inputs[1], defaults.get(node.name))
        drop_other_tables(model, set(lookups))


def _check_exists(model: Model, node: Node) -> None:
    """Refuse outputs that depend on whether a key was found; training wrappers have been removed before."""
    users = model.graph.uses(node.output(1)) if node.op.endswith("WithExists") else []
    needed = model.graph.ancestors(model.outputs())
    for user, _ in users:
        if user.name in needed:
            raise ConversionError(
                f"node '{user.name}': uses whether '{node.name}' found its keys, expected lookups whose rows alone "
                f"are used"
            )
