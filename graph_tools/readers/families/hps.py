# SPDX-License-Identifier: Apache-2.0
"""Read HugeCTR's hierarchical parameter server: lookups by model and table number, and folders from a JSON file."""

from __future__ import annotations

from pathlib import Path

from graph_tools.errors import UnreadableError
from graph_tools.graph import Node, attribute
from graph_tools.graph.sparse_lookup import add_lookup
from graph_tools.model import Model
from graph_tools.model.tables import SparseTable
from graph_tools.readers.families.lookups import replace_output, served_nodes
from graph_tools.readers.hps_files import KEY_FILE, ROW_FILE, Configuration, Configured, open_table, read_configuration

LOOKUP, INIT = "Lookup", "Init"


class HugeCtrHps:
    """Reads the lookups of HPS's TensorFlow plugin.

    Before: `values → Lookup(model_name, table_id, emb_vec_size) → rows`, with `Init(ps_config_file)` before it.

    After: `values → SparseLookup → rows`.

    The configuration is searched at the path in the graph, next to the SavedModel and in the folder of `--checkpoint`.
    The tables' folders are searched in the same places, since the paths in both are often those of another machine.
    """

    name = "HugeCTR HPS"

    def matches(self, model: Model) -> bool:
        # These op names are so short that another library may use them as well.
        return any({"model_name", "table_id", "emb_vec_size"} <= set(node.attrs) for node in model.graph.of(LOOKUP))

    def normalize(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        server = _Server(model, tables)
        for node in served_nodes(model, {LOOKUP}):
            table = server.table_of(node)
            if table.name not in model.sparse_tables:
                model.sparse_tables[table.name] = table
            key_type, dtype = attribute(node, "value_dtype"), attribute(node, "dtype")
            made = add_lookup(
                model.graph, table.name, node.inputs[0], key_type, table.dim, dtype, name=f"{node.name}/rows"
            )
            replace_output(model, node.output(), made.output())


class _Server:
    """The configurations that the graph names, and the tables opened so far."""

    def __init__(self, model: Model, tables: Path | None) -> None:
        self.model = model
        self.folder = tables
        self.configurations: dict[Path, Configuration] = {}
        self.opened: dict[tuple[Path, str, int], SparseTable] = {}

    def table_of(self, node: Node) -> SparseTable:
        path = self._configuration_path(node)
        if path not in self.configurations:
            self.configurations[path] = read_configuration(path)
        configuration = self.configurations[path]
        wanted, number = attribute(node, "model_name").decode(), attribute(node, "table_id")
        listed = [table for table in configuration.tables if table.model == wanted]
        if not listed:
            have = ", ".join(sorted({table.model for table in configuration.tables})) or "none"
            raise UnreadableError(f"{path}: models {have}, expected '{wanted}' as node '{node.name}' looks up in")
        if not 0 <= number < len(listed):
            raise UnreadableError(
                f"{path}: {len(listed)} tables of model '{wanted}', expected one with the table_id {number} of node "
                f"'{node.name}'"
            )
        group = _group(configuration, listed, number)
        key = (path, wanted, group[0].number)
        if key not in self.opened:
            self.opened[key] = self._open(path, configuration, group)
        table, dim = self.opened[key], attribute(node, "emb_vec_size")
        if table.dim != dim:
            raise UnreadableError(
                f"table {table.name}: rows of {table.dim}, expected {dim} as emb_vec_size of node '{node.name}'"
            )
        return table

    def _open(self, path: Path, configuration: Configuration, group: list[Configured]) -> SparseTable:
        """Open a table, or several tables that the server stores as one."""
        default = group[-1].default_value
        opened = [open_table(table.name, self._table_folder(path, table), table.dim, default) for table in group]
        first = group[0]
        shared = [table for table in configuration.tables if table.name == first.name]
        opened[0].name = first.name if len(shared) == 1 else f"{first.model}/{first.name}"
        for table in opened[1:]:
            opened[0].parts.extend(table.parts)
        return opened[0]

    def _configuration_path(self, node: Node) -> Path:
        named = _configuration_of(self.model, node)
        places = self._places()
        for place in places:
            # Joining an absolute path replaces the folder.
            for candidate in (place / named, place / Path(named).name) if named else ():
                if candidate.is_file():
                    return candidate
        found = [path for path in sorted(self.folder.glob("*.json")) if _is_configuration(path)] if self.folder else []
        if len(found) == 1:
            return found[0]
        have = f", and {len(found)} configurations in {self.folder}" if self.folder else ""
        raise UnreadableError(
            f"{self.model.path}: ps_config_file '{named}' of node '{node.name}' does not exist{have}, expected "
            f"--checkpoint with the folder of the server's configuration and tables"
        )

    def _table_folder(self, config: Path, table: Configured) -> Path:
        for place in [*self._places(), config.parent]:
            for candidate in (place / table.folder, place / Path(table.folder).name):
                if (candidate / KEY_FILE).is_file() or (candidate / ROW_FILE).is_file():
                    return candidate
        raise UnreadableError(
            f"{config}: the folder '{table.folder}' of table {table.name} does not exist, expected it beside the "
            f"configuration or in the folder of --checkpoint, with the files {KEY_FILE} and {ROW_FILE}"
        )

    def _places(self) -> list[Path]:
        path = self.model.path
        beside = [path, path / "assets.extra", path.parent] if path.is_dir() else [path.parent]
        return [self.folder, *beside] if self.folder is not None else beside


def _group(configuration: Configuration, listed: list[Configured], number: int) -> list[Configured]:
    """Return the tables that the server stores as one with a model's table `number`."""
    if not configuration.fused or listed[number].dim is None:
        return [listed[number]]
    return [table for table in listed if table.dim == listed[number].dim]


def _configuration_of(model: Model, node: Node) -> str:
    """Return `ps_config_file` of the Init op on which a lookup depends; "" if there is none."""
    graph = model.graph
    for name in sorted(graph.ancestors([node.inputs[-1].node])):
        if graph[name].op == INIT and "ps_config_file" in graph[name].attrs:
            return str(attribute(graph[name], "ps_config_file").decode())
    return ""


def _is_configuration(path: Path) -> bool:
    try:
        return bool(read_configuration(path).tables)
    except UnreadableError:
        return False
