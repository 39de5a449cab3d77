# SPDX-License-Identifier: Apache-2.0
"""Convert embedding tables between a model and a SavedModel, whose assets initialize `RecEmbeddingTable` resources.

The resource's `shared_name` is the table's SHA-256. A process that loads two models therefore has one resource for
equal tables, and separate resources for different tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graph_tools.errors import ConversionError, UnreadableError, naming
from graph_tools.graph import Graph, Node, Output, attribute
from graph_tools.model import Model
from graph_tools.store.reader import TableReader
from graph_tools.store.spec import TableSpec
from graph_tools.store.table_file import MEMORY_LIMIT, TableFile
from graph_tools.store.table_store import TableStore, place_table
from graph_tools.tables.add_table import TABLE

INITIALIZER = "RecInitializeEmbeddingTable"

Progress = Callable[[str, int], None]


@dataclass
class TableOutput:
    """Destination of a model's tables.

    Attributes
    ----------
    store : TableStore or None
        None: write files that only this artifact uses.
    memory_limit : int [bytes]
    files : dict of str to TableFile
        By node, once they are written.
    """

    store: TableStore | None = None
    memory_limit: int = MEMORY_LIMIT
    files: dict[str, TableFile] = field(default_factory=dict)

    def write(self, model: Model, folder: Path, progress: Progress | None = None) -> None:
        """Write the tables of the graph into the assets of a SavedModel.

        Raises
        ------
        ConversionError
            A node has no table, or its row length differs from the table's; or as for `write_table`.
        """
        self.files = {}
        written: dict[int, TableFile] = {}
        for node in model.graph.of(TABLE):
            spec = table_of_node(model, node)
            folder.mkdir(exist_ok=True)
            # Several nodes may have one table, as `merge` leaves them; it is written once. Equal tables have the same
            # file name.
            if id(spec) not in written:
                table_progress = None if progress is None else (lambda count, name=node.name: progress(name, count))
                with naming(f"table '{node.name}'"):
                    written[id(spec)] = place_table(
                        spec, folder, self.store, memory_limit=self.memory_limit, progress=table_progress
                    )
            self.files[node.name] = written[id(spec)]


def table_of_node(model: Model, node: Node) -> TableSpec:
    """Return the table of a node.

    Raises
    ------
    ConversionError
        The node has no table, or its row length differs from the table's.
    """
    spec = model.embedding_tables.get(node.name)
    if spec is None:
        raise ConversionError(f"table '{node.name}': no rows, expected some to write")
    if attribute(node, "dim") != spec.dim:
        raise ConversionError(
            f"table '{node.name}': rows of {spec.dim}, expected {attribute(node, 'dim')} as its node says"
        )
    return spec


def add_initializers(graph: Graph, meta_graph: Any, files: dict[str, TableFile], sources: dict[str, str]) -> list[str]:
    """Add nodes that fill tables from assets when the model is loaded, and return their names.

    Parameters
    ----------
    sources : dict of str to str
        For tables that change: the name of the source table, by node. Tables with equal files then change separately.
    """
    names: dict[str, Output] = {}
    shared: set[str] = set()
    added = []
    for node, file in files.items():
        if file.name not in names:
            names[file.name] = graph.add_const(file.name, f"tables/{file.sha256[:16]}/filename")
            asset = meta_graph.asset_file_def.add(filename=file.name)
            asset.tensor_info.name = str(names[file.name])
        name = f"{file.sha256}/{sources[node]}" if node in sources else file.sha256
        graph.set_attr(graph[node], "shared_name", name)
        if name not in shared:
            shared.add(name)
            inputs = [graph[node].output(), names[file.name]]
            added.append(graph.add(INITIALIZER, inputs, name=f"tables/{file.sha256[:16]}/initialize").name)
    return added


def take_tables(model: Model) -> None:
    """Convert the initializers of tables that were read to the model's `embedding_tables`.

    Raises
    ------
    UnreadableError
        A table's file is damaged, does not fit its node, or is not an asset.
    """
    graph = model.graph
    initialized: dict[tuple[str, str], TableSpec] = {}
    for name in sorted(graph.ancestors(model.init)):
        node = graph[name]
        if node.op != INITIALIZER:
            continue
        handle, filename = graph[node.inputs[0].node], node.inputs[1].node
        if filename not in model.assets or handle.op != TABLE:
            raise UnreadableError(f"node '{name}': fills {handle.op} '{handle.name}' from '{filename}', expected a "
                                  f"{TABLE} and the name of an asset")  # fmt: skip
        initialized[_resource_name(handle)] = TableReader(model.assets[filename]).spec()
        graph.replace_control(name, [])
        graph.remove(name, "made again when the table is written")
        if not graph.users(filename):
            graph.remove(filename, "made again when the table is written")
            del model.assets[filename]
    for node in graph.of(TABLE):
        spec = initialized.get(_resource_name(node))
        if spec is None:
            continue
        assert spec.file is not None
        if attribute(node, "dim") != spec.dim:
            raise UnreadableError(f"{spec.file}: rows of {spec.dim}, expected {attribute(node, 'dim')}")
        model.embedding_tables[node.name] = spec
        graph.set_attr(node, "shared_name", "")
    for name in list(model.init):
        if name not in graph or (graph[name].op == "NoOp" and not graph[name].controls):
            model.init.remove(name)
            if name in graph and not graph.users(name):
                graph.remove(name, "initializes nothing else")


def _resource_name(node: Node) -> tuple[str, str]:
    """Return container and name, which are equal for all nodes of one resource."""
    container, name = (attribute(node, key, b"").decode() for key in ("container", "shared_name"))
    return container, name or node.name
