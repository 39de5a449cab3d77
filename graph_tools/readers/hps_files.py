# SPDX-License-Identifier: Apache-2.0
"""Read tables of HugeCTR's hierarchical parameter server: folders with the raw files `key` and `emb_vector`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.readers.byte_stream import RawFileTensor, file_size
from graph_tools.tables.checks import check_shapes

KEY_FILE = "key"
ROW_FILE = "emb_vector"


def find_tables(folder: Path) -> dict[str, Path]:
    """Return the tables in a folder and the folders below it, by their relative paths."""
    found = {}
    for path in sorted([folder / KEY_FILE, *folder.rglob(f"*/{KEY_FILE}")]):
        if path.is_file() and (path.parent / ROW_FILE).is_file():
            name = path.parent.relative_to(folder).as_posix()
            found[folder.name if name == "." else name] = path.parent
    return found


def open_table(name: str, folder: Path, dim: int | None = None, default_value: float | None = None) -> SparseTable:
    """Open a table.

    Parameters
    ----------
    dim : int or None
        Length of a row; None: computed from the sizes of the two files.
    default_value : float or None
        `default_value_for_each_table` of the server's configuration; None if it is not known.
    """
    keys = RawFileTensor(folder / KEY_FILE, np.dtype("<i8"))
    count = keys.shape[0]
    row_path = folder / ROW_FILE
    size = file_size(row_path)
    if not count:
        raise UnreadableError(f"{folder / KEY_FILE}: empty, expected at least one key")
    found, rest = divmod(size, 4 * count)
    if rest or not found or (dim is not None and found != dim):
        expected = (
            f"{4 * count * dim} ({count} keys x {dim} floats)" if dim else f"a multiple of {4 * count} above zero"
        )
        raise UnreadableError(f"{row_path}: {size} bytes, expected {expected}")
    table = SparseTable(
        name=name,
        family="hps",
        key_dtype=keys.dtype,
        dim=found,
        dtype=np.dtype(np.float32),
        parts=[Part(keys, RawFileTensor(row_path, np.dtype("<f4"), (found,)))],
        absent=_absent(default_value, found),
    )
    check_shapes(table)
    return table


def _absent(default_value: float | None, dim: int) -> Absent:
    if default_value is None:
        return Absent(None, "HPS: zeros, the server's own default; its configuration was not given")
    rows = np.full((1, dim), default_value, np.float32) if default_value else None
    return Absent(rows, f"HPS: default_value_for_each_table of the configuration, {default_value:g}")


@dataclass(frozen=True)
class Configured:
    """A table in a server's configuration; None for entries that the configuration does not have.

    Attributes
    ----------
    model : str
    number : int
        `table_id` of the lookups: its position among the model's tables.
    name, folder : str
        The folder as written, which may be that of another machine.
    dim : int or None
    default_value : float or None
    """

    model: str
    number: int
    name: str
    folder: str
    dim: int | None
    default_value: float | None


@dataclass(frozen=True)
class Configuration:
    """The tables of all models of a server; if `fused`, a model's tables with equal row lengths are one table."""

    tables: list[Configured]
    fused: bool


def read_configuration(config: Path) -> Configuration:
    """Read a server's configuration (JSON).

    Raises
    ------
    UnreadableError
        It is not such a file, or the length of a list differs from the model's number of tables.
    """
    try:
        whole: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
        models: list[dict[str, Any]] = whole["models"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"{config}: {error!r}, expected JSON with a list `models`") from error
    tables = []
    for model in models:
        folders = _list_field(config, model, "sparse_files", None)
        names = _list_field(config, model, "embedding_table_names", len(folders))
        dims = _list_field(config, model, "embedding_vecsize_per_table", len(folders))
        defaults = _list_field(config, model, "default_value_for_each_table", len(folders))
        for i, folder in enumerate(folders):
            dim = None if dims[i] is None else int(dims[i])
            value = None if defaults[i] is None else float(defaults[i])
            name = str(names[i] or Path(folder).name)
            tables.append(Configured(str(model.get("model", "")), i, name, str(folder), dim, value))
    return Configuration(tables, bool(whole.get("fuse_embedding_table")))


def open_configured(config: Path, root: Path | None = None) -> list[SparseTable]:
    """Open the tables of a server's configuration, with their row lengths and default values.

    Parameters
    ----------
    root : Path or None
        Folder that relative `sparse_files` refer to; None: the configuration's folder.
    """
    return [
        open_table(table.name, (root or config.parent) / table.folder, table.dim, table.default_value)
        for table in read_configuration(config).tables
    ]


def _list_field(config: Path, model: dict[str, Any], field: str, count: int | None) -> list[Any]:
    """Return a list of a model's entry with one element per table; if it is missing, a list of `count` None."""
    value = model.get(field)
    if value is None and count is not None:
        return [None] * count
    if not isinstance(value, list) or (count is not None and len(value) != count):
        expected = "a list" if count is None else f"a list of {count}, one a table"
        raise UnreadableError(f"{config}: {field} of model {model.get('model')!r} is {value!r}, expected {expected}")
    return value
