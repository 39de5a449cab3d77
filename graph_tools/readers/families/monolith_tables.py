# SPDX-License-Identifier: Apache-2.0
"""Find the tables of a Monolith graph: the dump from which each handle is restored, and its contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import Graph, Node, Output, attribute, constant
from graph_tools.model import Model
from graph_tools.model.tables import SparseTable
from graph_tools.readers import monolith_files
from graph_tools.readers.monolith_config import TableConfig, parse_table, parse_tables
from graph_tools.tables.absent_keys import base_name
from graph_tools.tensors import rows_per_chunk

ONE, READ, CREATE = "MonolithHashTable", "ReadMonolithMultiHashTable", "CreateMonolithMultiHashTable"
RESTORES = {"MonolithHashTableRestore", "MonolithMultiHashTableRestore"}
_PASSES_ON = {"Identity", *RESTORES}


@dataclass
class Member:
    """A table as a lookup sees it.

    Attributes
    ----------
    name : str
    dim : int
    table : SparseTable or None
        None if the dump has no rows of it.
    """

    name: str
    dim: int
    table: SparseTable | None


@dataclass(frozen=True)
class Export:
    """One SavedModel of an export: the entry, the whole export, or parameter server `number`."""

    model: Model
    number: int | None = None


class Tables:
    """Opens the tables of handles, each once, and adds those that are looked up to the model."""

    def __init__(self, model: Model, folder: Path | None, servers: dict[int, Path]) -> None:
        self.model = model
        self.folder = folder
        self.servers = servers
        self.exports: dict[str, Export] = {}
        self._main = Export(model)
        self._opened: dict[tuple[int | None, str], list[Member]] = {}
        self._merged_shards: dict[tuple[int, ...], list[Member]] = {}
        self._dumps: dict[Path, dict[str, monolith_files.Dump]] = {}

    def of_handle(self, handle: Output) -> list[Member]:
        """Return the tables behind a handle, in the order in which lookups number them.

        Raises
        ------
        UnreadableError
            A shard is missing or damaged, or the length of rows differs from that in the graph.
        ConversionError
            An op other than a restore is between the handle and its table, or rows are served as one bit per value.
        """
        maker = maker_of(self.model.graph, handle)
        export = self.exports.get(maker.name, self._main)
        key = (export.number, shared_name(maker))
        if key not in self._opened:
            self._opened[key] = self._open(maker, export)
        return self._opened[key]

    def use(self, member: Member) -> str:
        """Add a table to the model and return its name for lookups."""
        table = member.table
        assert table is not None
        held = self.model.sparse_tables.setdefault(table.name, table)
        if held is not table:
            raise ConversionError(f"table {table.name}: two tables have this name, expected different names")
        return table.name

    def merge(self, shards: Sequence[Sequence[Member]]) -> list[Member]:
        """Merge the tables of servers or shards, in which a key is in number `key mod shards`.

        Raises
        ------
        UnreadableError
            A key is in another shard, where lookups never found it.
        """
        # `of_handle` returns the same list for the same handle, and the list lives as long as this object.
        key = tuple(map(id, shards))
        if key not in self._merged_shards:
            self._merged_shards[key] = [_merge_shards(members) for members in zip(*shards, strict=True)]
        return self._merged_shards[key]

    def _open(self, maker: Node, export: Export) -> list[Member]:
        shared = shared_name(maker)
        configs = _configs(maker, export.model.graph)
        found = self._find(shared, export)
        if maker.op == ONE:
            tables = {shared: found.get(shared)}
        else:
            missing = [name for name in configs if name not in found]
            if missing:
                raise UnreadableError(
                    f"table {shared}: contains {', '.join(found)}, expected also {', '.join(missing)}"
                )
            tables = {name: found[name] for name in configs or found}
        members = []
        for name, table in tables.items():
            config = configs.get(name)
            if config is not None and config.one_bit:
                raise ConversionError(f"table {name}: served as one bit a value, expected rows to be served as saved")
            if config is None and table is None:
                raise UnreadableError(f"table {name}: no entries, and no length of a row in the graph; expected either")
            dim = config.dim if config is not None else table.dim if table is not None else 0
            if table is not None and table.dim != dim:
                raise UnreadableError(f"table {name}: rows of {table.dim}, expected {dim} as its config says")
            members.append(self._member(name, dim, table, maker, export))
        return members

    def _member(self, name: str, dim: int, table: SparseTable | None, maker: Node, export: Export) -> Member:
        """Name a table: as a part if it is a server's, and with the handle's name in front if the name is taken."""
        number = export.number
        if number is not None:
            name = f"{name.removesuffix(f'_{number}') if maker.op == ONE else name}/part_{number}"
        if any(name == member.name for members in self._opened.values() for member in members):
            name = f"{shared_name(maker)}/{name}"
        if table is not None:
            table.name = name
        return Member(name, dim, table)

    def _find(self, shared: str, export: Export) -> dict[str, SparseTable | None]:
        """Return the tables of the dump from which a table is restored; one named after the dump is named `shared`."""
        basename = _basename(export.model.graph, shared)
        prefix = Path(basename).name
        folders = [Path(basename).parent] if Path(basename).is_absolute() else []
        folders = [export.model.path / "assets", *folders]
        if self.folder is not None:
            folders = [self.folder, self.folder / "assets", *folders]
        for folder in folders:
            dump = self._dumps_in(folder).get(prefix)
            if dump is not None:
                return _rename_shared(monolith_files.open_all(prefix, dump), prefix, shared)
        spread = self._find_at_servers(prefix) if export.number is None else []
        if spread:
            return _rename_shared(_merge_by_name(spread), prefix, shared)
        where = " or ".join(str(folder) for folder in folders)
        raise UnreadableError(
            f"table {shared}: no shards '{prefix}-00000-of-…' in {where}, expected them there or in the folder of "
            f"--checkpoint"
        )

    def _find_at_servers(self, prefix: str) -> list[dict[str, SparseTable | None]]:
        """Open a table of the entry that is distributed over the assets of the parameter servers."""
        found = []
        for number, path in sorted(self.servers.items()):
            dumps = self._dumps_in(path / "assets")
            dump = dumps.get(prefix, dumps.get(f"{prefix}_{number}"))
            if dump is not None:
                found.append(monolith_files.open_all(prefix, dump))
        if found and len(found) < len(self.servers):
            raise UnreadableError(
                f"table {prefix}: {len(found)} of {len(self.servers)} parameter servers have shards, expected all"
            )
        return found

    def _dumps_in(self, folder: Path) -> dict[str, monolith_files.Dump]:
        if folder not in self._dumps:
            self._dumps[folder] = monolith_files.find_dumps(folder) if folder.is_dir() else {}
        return self._dumps[folder]


def maker_of(graph: Graph, handle: Output) -> Node:
    """Return the node that creates a handle.

    Raises
    ------
    ConversionError
        An op other than a restore is between them.
    """
    node = graph.source(handle)
    while node.op in _PASSES_ON:
        node = graph.input(node, 0)
    if node.op not in {ONE, READ, CREATE}:
        raise ConversionError(f"node '{node.name}' ({node.op}): gives the handle of a lookup, expected a table")
    return node


def shared_name(maker: Node) -> str:
    return str(attribute(maker, "shared_name", b"").decode() or maker.name)


def _configs(maker: Node, graph: Graph) -> dict[str, TableConfig]:
    """Return the graph's configurations of a handle's tables; empty if the graph does not have them as constants."""
    shared = shared_name(maker)
    try:
        if maker.op == ONE:
            config = attribute(maker, "config", b"")
            parsed = parse_table(config)
            return {shared: parsed} if parsed.dim else {}
        for create in graph.of(CREATE):
            if shared_name(create) == shared:
                value = constant(graph, create.inputs[0])
                return parse_tables(value.item()) if value is not None else {}
    except ValueError as error:
        raise UnreadableError(
            f"node '{maker.name}': config with {error}, expected the message of its tables"
        ) from error
    return {}


def _basename(graph: Graph, shared: str) -> str:
    """Return the path from which a table is restored, computed from the graph; else a file name made of its name."""
    for node in graph.of(*RESTORES):
        if shared_name(maker_of(graph, node.inputs[0])) == shared:
            text = _text(graph, node.inputs[1])
            if text is not None:
                return text
    return shared.replace(":", "-").replace("/", "-")


def _text(graph: Graph, output: Output) -> str | None:
    """Return a text that is joined from constants, or None."""
    node = graph.source(output)
    if node.op == "StringJoin":
        pieces = [_text(graph, source) for source in node.inputs]
        separator = attribute(node, "separator", b"").decode()
        return None if None in pieces else separator.join(piece for piece in pieces if piece is not None)
    value = constant(graph, output)
    return value.item().decode() if value is not None and value.size == 1 else None


def _rename_shared(found: dict[str, SparseTable | None], prefix: str, shared: str) -> dict[str, SparseTable | None]:
    return {shared if name == prefix else name: table for name, table in found.items()}


def _merge_by_name(found: list[dict[str, SparseTable | None]]) -> dict[str, SparseTable | None]:
    kept: dict[str, list[SparseTable]] = {name: [] for tables in found for name in tables}
    for tables in found:
        for name, table in tables.items():
            if table is not None:
                kept[name].append(table)
    return {name: _join_tables(name, tables) if tables else None for name, tables in kept.items()}


def _join_tables(name: str, tables: list[SparseTable]) -> SparseTable:
    """Return one table with the parts of several."""
    first = tables[0]
    for table in tables:
        if table.dim != first.dim:
            raise UnreadableError(f"table {name}: shards with rows of {first.dim} and {table.dim}, expected one length")
    parts = [part for table in tables for part in table.parts]
    dropped = [tensor for table in tables for tensor in table.dropped_tensors]
    return SparseTable(name, first.family, first.key_dtype, first.dim, first.dtype, parts, first.absent, dropped)


def _merge_shards(members: Sequence[Member]) -> Member:
    """Return one table for the shards of a table."""
    name = _stem(members)
    dims = {member.dim for member in members}
    if len(dims) > 1:
        raise UnreadableError(f"table {name}: shards with rows of {sorted(dims)}, expected one length")
    for number, member in enumerate(members):
        if member.table is not None:
            _check_shard(member.table, number, len(members))
    kept = [member.table for member in members if member.table is not None]
    return Member(name, members[0].dim, _join_tables(name, kept) if kept else None)


def _stem(members: Sequence[Member]) -> str:
    """Return the name of a table's shards without their numbers; if they differ further, that of the first shard."""
    for stems in (
        {base_name(member.name) for member in members},
        {member.name.removesuffix(f"_{number}") for number, member in enumerate(members)},
    ):
        if len(stems) == 1:
            return stems.pop()
    return members[0].name


def _check_shard(table: SparseTable, number: int, count: int) -> None:
    for part in table.parts:
        for keys in part.keys.chunks(rows_per_chunk(part.keys)):
            wrong = np.flatnonzero(keys % count != number)
            if len(wrong):
                key = int(keys[wrong[0]])
                raise UnreadableError(
                    f"table {table.name}: key {key} in shard {number}, expected it in {key % count} of {count}"
                )
