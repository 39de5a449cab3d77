# SPDX-License-Identifier: Apache-2.0
"""Find the values that an input of a fused op may have from its plan and tables."""

from __future__ import annotations

import numpy as np

from graph_tools.graph import Node, attribute
from graph_tools.model import Model
from graph_tools.plans import EmbeddingPlan
from graph_tools.plans.embedding_parts import Bucketize, Factor, Key, Lookup
from graph_tools.readers.restore import handle_of
from graph_tools.store import TableSpec
from graph_tools.verification.domain import Domain
from graph_tools.verification.sample import SAMPLE, sample

OP = "RecEmbeddingGroup"


def note_group(model: Model, node: Node, index: int, domain: Domain) -> None:
    """Add what a RecEmbeddingGroup shows of its input `index` to `domain`."""
    plan = EmbeddingPlan.from_json(attribute(node, "plan"))
    count = len(node.inputs) - attribute(node, "num_tables")
    for number, key in enumerate(plan.keys):
        if key.feature != index:
            continue
        if key.ignore is not None:
            domain.special.append(key.ignore.encode() if isinstance(key.ignore, str) else key.ignore)
        for step in key.steps:
            if isinstance(step, Bucketize):
                domain.special.extend(step.boundaries)
        for column in plan.columns:
            reads: list[Lookup | Factor] = [column, *column.factors] if isinstance(column, Lookup) else []
            for table in (each.table for each in reads if each.key == number):
                spec = model.embedding_tables.get(handle_of(model.graph, node.inputs[count + table]))
                if spec is not None:
                    _note_table(spec, key, domain)


def _note_table(spec: TableSpec, key: Key, domain: Domain) -> None:
    """Add the keys of a table, if keys are looked up without any steps before."""
    if key.steps:
        return
    if spec.keys is not None:
        domain.known.append(sample(spec.keys))
        return
    rows = spec.rows.shape[0]
    domain.known.append(np.arange(min(rows, SAMPLE), dtype=np.int64))
    if spec.absent_key == "error":
        domain.rows = rows if domain.rows is None else min(domain.rows, rows)
