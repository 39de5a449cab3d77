# SPDX-License-Identifier: Apache-2.0
"""Find the tensors of a checkpoint that serving does not need, with the reason."""

from __future__ import annotations

import re

from graph_tools.graph.sparse_lookup import lookups, table_of
from graph_tools.model import Model

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SLOTS = re.compile(
    r"\.OPTIMIZER_SLOT|/(Adam|Adagrad|AdagradDecay|AdamAsync|Ftrl|Momentum|RMSProp|Adadelta)(_\d+)?(/|-|$)|"
    r"(^|/)_?optimizer/|(^|/)beta[12]_power$|(^|/)save_counter/|(^|/)global_step$"
)


def mark_unused_tensors(model: Model) -> None:
    """Fill `model.unused_tensors` with all tensors of the checkpoint from which no handle of the graph is restored.

    Call this right after the graph was pruned: tensors that later passes merge or fold count as used.
    """
    model.marked_tensors = True
    if model.checkpoint is None:
        return
    names = model.checkpoint.names()
    tables = {table_of(node) for node in lookups(model.graph)}
    needed = [tensor_name for tensor_name in model.tensor_names if tensor_name in model.graph or tensor_name in tables]
    used = {name for handle in needed for name in model.tensor_names[handle]}
    known = dict(model.unused_tensors)
    restored = {name for several in model.tensor_names.values() for name in several}
    for table in model.sparse_tables.values():
        known |= {name: reason for name, _, reason in table.dropped_tensors}
    for name in names:
        if name not in used:
            model.unused_tensors[name] = known.get(name) or _reason(name, restored)


def _reason(name: str, restored: set[str]) -> str:
    if name == _OBJECT_GRAPH:
        return "describes Python objects of the training program"
    if _SLOTS.search(name):
        return "state of the training only: optimizer slots, counters"
    if name not in restored:
        return "the graph restores no variable from it"
    return "no output of a kept signature reads its variable"
