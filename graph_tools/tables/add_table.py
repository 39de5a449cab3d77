# SPDX-License-Identifier: Apache-2.0
"""Add an embedding table to a model."""

from __future__ import annotations

from graph_tools.graph import Output
from graph_tools.model import Model
from graph_tools.store.spec import TableSpec

TABLE = "RecEmbeddingTable"


def add_embedding_table(model: Model, name: str, spec: TableSpec) -> Output:
    """Add a table to a model and return its handle; adding the same `spec` again returns the existing node.

    Parameters
    ----------
    model : Model
    name : str
        Preferred name of the node.
    spec : TableSpec
    """
    for node, known in model.embedding_tables.items():
        if known is spec and node in model.graph:
            return Output(node)
    added = model.graph.add(TABLE, name=name, attrs={"container": "", "shared_name": "", "dim": spec.dim})
    model.embedding_tables[added.name] = spec
    return added.output()
